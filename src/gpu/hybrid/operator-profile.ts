/**
 * Measures a function's operator profile on this machine, for the planners of GPU and CPU: Chrion's matrices W and M
 * (Yang et al., section 3).
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ElementType, GraphBuilder, readModel, writeModel, type ModelProto } from '../../onnx/index.ts';
import type { GraphProfile, OperatorProfile, OperatorsEstimate } from '../../profile/index.ts';
import { elementCount, packBytes, type Tensor } from '../../tensor/index.ts';
import { NativeArena } from '../driver/native-memory.ts';
import type { Engine } from '../engine/engine.ts';
import { sampleInput } from '../measure/inputs.ts';
import { measureCrossings, measureOperatorsOnGpu } from '../measure/operators.ts';
import { spreadOf } from '../measure/timing.ts';
import { GpuError } from '../types.ts';
import { operators } from '../operators/index.ts';
import { defaultSettings } from '../program/index.ts';
import { CpuCores } from './cpu-cores.ts';
import { measureOperatorsOnCpu, type CpuTimingOptions } from './cpu-operators.ts';
import { draftOperators, type DraftedNode, type OperatorDraft } from './operator-draft.ts';
import { hybridGraph, type HybridGraphOptions } from './prepare.ts';
import type { CpuCall, HostTensor } from './types.ts';
import { given } from '../../tools/index.ts';

/** Times of a draft's operators, in milliseconds. */
export interface OperatorTimes {
  /** By label. Operators without launches are missing: they take no time. */
  readonly gpuMs: ReadonlyMap<string, number>;
  /** By node name: times on one core while 1, 2, ... cores are busy. */
  readonly cpuMs: ReadonlyMap<string, readonly number[]>;
  /** GB/s (10^9 bytes per second) between host and GPU. */
  readonly bandwidth: number;
  /** Time of a crossing of zero bytes. */
  readonly latencyMs: number;
  /** Time of one call of a sub-graph on the CPU without operators. */
  readonly callMs: number;
}

export function graphProfileOf({ operators, edges }: OperatorDraft, times: OperatorTimes): GraphProfile {
  return {
    unit: 'ms',
    nodes: operators.map(({ name, nodes, obstacle, bytes, shares }): OperatorProfile => {
      const gpuMs = nodes.reduce((sum, { label }) => sum + (times.gpuMs.get(label) ?? 0), 0);
      return {
        name,
        gpu: obstacle === null ? gpuMs : null,
        cpu: cpuMsOf(nodes, times),
        bytes,
        ...given({ shares }),
      };
    }),
    edges,
    bandwidth: times.bandwidth,
    latency: times.latencyMs,
    // All functions of a GPU use one arena in turn, so a resident function occupies its weights alone.
    activations: 'shared',
    callMs: times.callMs,
  };
}

/** The sum over a group's nodes, which run one after the other. */
function cpuMsOf(nodes: readonly DraftedNode[], { cpuMs }: OperatorTimes): number[] {
  const found = nodes.map(({ name }) => {
    const timed = cpuMs.get(name);
    if (timed === undefined) throw new GpuError('invalid', `operator '${name}' was not timed on the CPU`);
    return timed;
  });
  return found.reduce<number[]>((sum, each) => each.map((ms, cores) => (sum[cores] ?? 0) + ms), []);
}

export interface ProfileOperatorsOptions extends CpuTimingOptions {
  readonly engine: Engine;
  readonly draft: OperatorDraft;
  /** The function, registered with the draft's layout. */
  readonly key: string;
  readonly gpu: number;
  readonly cpuCores: CpuCores;
}

/**
 * Measures a function's operators; nothing else should run meanwhile. The function's weights stay on the GPU.
 *
 * @throws GpuError
 */
export async function profileOperators(options: ProfileOperatorsOptions): Promise<GraphProfile> {
  const { engine, key, gpu, draft, cpuCores, iterations, signal } = options;
  const inputs = functionInputs(draft);
  let gpuMs: ReadonlyMap<string, number> = new Map();
  if (draft.gpu !== null) {
    const crossing = await crossingValues(draft, inputs, cpuCores);
    const timing = { gpu, inputs: [...inputs, ...crossing], ...given({ iterations, signal }) };
    gpuMs = (await measureOperatorsOnGpu(engine, key, draft.gpu, timing)).operators;
  }
  const { bandwidth, latencyMs } = await measureCrossings(engine, key, gpu);
  const callMs = await measureCall(cpuCores);
  const cpuMs = await timeOnCpu(draft, options);
  return graphProfileOf(draft, { gpuMs, cpuMs, bandwidth, latencyMs, callMs });
}

function timeOnCpu(draft: OperatorDraft, options: CpuTimingOptions): Promise<Map<string, number[]>> {
  const nodes = draft.operators.flatMap((operator) => operator.nodes.map(({ name }) => name));
  return measureOperatorsOnCpu({ modelPath: draft.modelPath, inputs: functionInputs(draft), nodes }, options);
}

/**
 * Inputs for timing. Values matter only for indices into tables, and for texts that are cast to numbers: those are '0'.
 */
function functionInputs({ inputs, layout }: OperatorDraft): Tensor[] {
  return inputs.map((input): Tensor => {
    const { name, datatype, shape } = input;
    if (datatype !== 'BYTES') return { name, datatype, shape, data: sampleInput(layout, input, inputs) };
    return { name, datatype, shape, data: packBytes(Array.from({ length: elementCount(shape) }, () => '0')) };
  });
}

/** The values that the CPU's operators make for the GPU's share. */
async function crossingValues(
  { crossing }: OperatorDraft,
  inputs: readonly Tensor[],
  cores: CpuCores,
): Promise<Tensor[]> {
  if (crossing === null) return [];
  const part = await cores.core(1).open(crossing.modelPath);
  try {
    const taken = inputs.filter(({ name }) => crossing.inputs.includes(name));
    return [...(await part.run({ inputs: taken, outputs: [], loose: crossing.outputs }))];
  } finally {
    await part.release();
  }
}

const calls = 200;

/** Median milliseconds of a core's round trip: a call of a sub-graph with one Identity. @throws GpuError */
async function measureCall(cores: CpuCores): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-call-'));
  const memory = new NativeArena();
  try {
    const graph = new GraphBuilder('call');
    const x = graph.input('x', ElementType.FLOAT, [1]);
    graph.output(graph.node('Identity', [x]), ElementType.FLOAT, [1], 'y');
    const modelPath = join(folder, 'call.onnx');
    await writeModel(graph.build(), modelPath);
    const part = await cores.core(1).open(modelPath);
    const place = (name: string): HostTensor => {
      const { address } = memory.allocate(4);
      return { name, datatype: 'FP32', shape: [1], address, bytes: 4 };
    };
    const call: CpuCall = { inputs: [place('x')], outputs: [place('y')], loose: [] };
    const times: number[] = [];
    for (let count = 0; count < calls; count++) {
      const startMs = performance.now();
      await part.run(call);
      times.push(performance.now() - startMs);
    }
    await part.release();
    return spreadOf(times).medianMs;
  } finally {
    memory.release();
    await rm(folder, { recursive: true, force: true });
  }
}

/** The profile with an estimate for the GPU in place of measurements. */
export interface ProfileOnCpuOptions extends HybridGraphOptions, CpuTimingOptions {
  /** Estimates times on the GPU, by node name, and of crossings. */
  readonly estimate: (model: ModelProto) => OperatorsEstimate;
}

/** Needs no GPU and no driver. @throws ProgramError, OnnxError, GpuError */
export async function profileOperatorsOnCpu(options: ProfileOnCpuOptions): Promise<GraphProfile> {
  const { modelPath, shapes, cells, cacheFolder, estimate, ...timing } = options;
  const prepared = await hybridGraph({ modelPath, shapes, cells, cacheFolder });
  const draft = await draftOperators(prepared, { operators, settings: defaultSettings, cacheFolder });
  const { gpuMs, bandwidth, latencyMs } = estimate(await readModel(draft.modelPath));
  // The estimate goes by operator and shape, but an operator without launches takes no time.
  const launched = new Set(draft.gpu?.single.launches.map(({ label }) => label));
  const byLabel = draft.operators
    .flatMap(({ nodes }) => nodes)
    .flatMap(({ name, label }) => (launched.has(label) ? [[label, gpuMs.get(name) ?? 0] as const] : []));
  const cpuMs = await timeOnCpu(draft, timing);
  const cores = new CpuCores({ count: 1, ...(timing.coreNumbers && { cores: timing.coreNumbers }) });
  try {
    const callMs = await measureCall(cores);
    // A thread reports the end of a copy; its message takes half the time of a call's round trip.
    const crossingMs = latencyMs + callMs / 2;
    return graphProfileOf(draft, { gpuMs: new Map(byLabel), cpuMs, bandwidth, latencyMs: crossingMs, callMs });
  } finally {
    await cores.close();
  }
}
