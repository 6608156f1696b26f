/**
 * The operator profile of a function, which plans over GPU and CPU are made from: Chrion's matrices W and M (Yang et
 * al., section 3), measured on the machine at hand.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import type { GraphProfile, OperatorProfile } from '../../profile/index.ts';
import { elementCount, packBytes, type Tensor } from '../../tensor/index.ts';
import { NativeArena } from '../driver/native-memory.ts';
import type { Engine } from '../engine/index.ts';
import { sampleInput } from '../measure/inputs.ts';
import { measureCrossings, measureOperatorsOnGpu } from '../measure/operators.ts';
import { spreadOf } from '../measure/timing.ts';
import { GpuError } from '../types.ts';
import { measureOperatorsOnCpu } from './cpu-operators.ts';
import type { DraftedNode, OperatorDraft } from './operator-draft.ts';
import type { CpuCores } from './cpu-cores.ts';
import type { CpuCall, HostTensor } from './types.ts';
import { given } from '../../tools/index.ts';

/** What was found out about a draft's operators, in milliseconds. */
export interface OperatorTimes {
  /** By label; what is not there launches nothing, and takes no time. */
  readonly gpuMs: ReadonlyMap<string, number>;
  /** By the node's name: on one core, while 1, 2, ... cores are at work. */
  readonly cpuMs: ReadonlyMap<string, readonly number[]>;
  /** GB/s (10^9 bytes per second) between host and GPU. */
  readonly bandwidth: number;
  /** Of a crossing, whatever its size. */
  readonly latencyMs: number;
  /** Of one call of a sub-graph on the CPU, beside its operators. */
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
    // Launches use one arena, which all functions of a GPU take in turn: a function keeps its weights there and nothing
    // else.
    activations: 'shared',
    callMs: times.callMs,
  };
}

/** A group's nodes run one after the other. */
function cpuMsOf(nodes: readonly DraftedNode[], { cpuMs }: OperatorTimes): number[] {
  const found = nodes.map(({ name }) => {
    const timed = cpuMs.get(name);
    if (timed === undefined) throw new GpuError('invalid', `operator '${name}' was not timed on the CPU`);
    return timed;
  });
  return found.reduce<number[]>((sum, each) => each.map((ms, cores) => (sum[cores] ?? 0) + ms), []);
}

export interface OperatorProgress {
  readonly done: number;
  readonly total: number;
  /** What is being measured now. */
  readonly label: string;
}

export interface CpuTimingOptions {
  readonly draft: OperatorDraft;
  /** Most cores that are busy at once. */
  readonly cores: number;
  /** The operating system's numbers of the cores. */
  readonly coreNumbers?: readonly number[];
  /** Timed repetitions of each measurement. Default 5. */
  readonly iterations?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: OperatorProgress) => void;
}

export interface ProfileOperatorsOptions extends CpuTimingOptions {
  readonly engine: Engine;
  /** The function, which the engine knows by the draft's layout. */
  readonly key: string;
  readonly gpu: number;
  /** What runs the sub-graphs of plans. */
  readonly cpuCores: CpuCores;
}

/**
 * Measures a function's operators. Nothing else should run meanwhile. Its weights stay on the GPU.
 *
 * @throws GpuError
 */
export async function profileOperators(options: ProfileOperatorsOptions): Promise<GraphProfile> {
  const { engine, key, gpu, draft, cpuCores, iterations, signal, onProgress } = options;
  onProgress?.({ done: 0, total: stepsOf(options), label: 'on the GPU' });
  const inputs = functionInputs(draft);
  let gpuMs: ReadonlyMap<string, number> = new Map();
  if (draft.gpu !== null) {
    const crossing = await crossingValues(draft, inputs, cpuCores);
    const timing = { gpu, inputs: [...inputs, ...crossing], ...given({ iterations }) };
    const found = await measureOperatorsOnGpu(engine, key, draft.gpu, {
      ...timing,
      ...given({ signal }),
    });
    gpuMs = found.operators;
  }
  onProgress?.({ done: 1, total: stepsOf(options), label: 'between host and GPU' });
  const { bandwidth, latencyMs } = await measureCrossings(engine, key, gpu);
  const callMs = await measureCall(cpuCores);
  const cpuMs = await timeOnCpu(options, 2);
  return graphProfileOf(draft, { gpuMs, cpuMs, bandwidth, latencyMs, callMs });
}

/** Times the operators on the CPU alone. @throws GpuError */
export async function timeOnCpu(
  { draft, cores, coreNumbers, iterations, signal, onProgress }: CpuTimingOptions,
  stepsBefore = 0,
): Promise<Map<string, number[]>> {
  return await measureOperatorsOnCpu({
    modelPath: draft.modelPath,
    inputs: functionInputs(draft),
    nodes: draft.operators.flatMap(({ nodes }) => nodes.map(({ name }) => name)),
    cores,
    ...given({ pinTo: coreNumbers, iterations, signal }),
    onProgress: ({ done, total, busyCores }) => {
      const label = `on the CPU, ${busyCores} ${busyCores === 1 ? 'core' : 'cores'} busy`;
      onProgress?.({ done: stepsBefore + done, total: stepsBefore + total, label });
    },
  });
}

function stepsOf({ cores }: CpuTimingOptions): number {
  return 3 + Math.ceil(Math.log2(Math.max(1, cores)));
}

/** Inputs whose values matter only where they choose rows of a table, or where a text has to be a number. */
function functionInputs({ inputs, layout }: OperatorDraft): Tensor[] {
  return inputs.map((input): Tensor => {
    const { name, datatype, shape } = input;
    if (datatype !== 'BYTES') return { name, datatype, shape, data: sampleInput(layout, input, inputs) };
    return { name, datatype, shape, data: packBytes(Array.from({ length: elementCount(shape) }, () => '0')) };
  });
}

/** What the CPU's operators give to the GPU's share for these inputs. */
async function crossingValues(
  { crossing }: OperatorDraft,
  inputs: readonly Tensor[],
  cores: CpuCores,
): Promise<Tensor[]> {
  if (crossing === null) return [];
  const part = await cores.open(1, { modelPath: crossing.modelPath });
  try {
    const taken = inputs.filter(({ name }) => crossing.inputs.includes(name));
    const { loose } = await part.run({ inputs: taken, outputs: [], loose: crossing.outputs });
    return [...loose];
  } finally {
    await part.release();
  }
}

const calls = 200;

/** Milliseconds from giving a core a sub-graph with nothing to do until its end is known here. @throws GpuError */
export async function measureCall(cores: CpuCores): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-call-'));
  const memory = new NativeArena();
  try {
    const graph = new GraphBuilder('call');
    const x = graph.input('x', ElementType.FLOAT, [1]);
    graph.output(graph.node('Identity', [x]), ElementType.FLOAT, [1], 'y');
    const modelPath = join(folder, 'call.onnx');
    await writeModel(graph.build(), modelPath);
    const part = await cores.open(1, { modelPath });
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
