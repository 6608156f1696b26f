/**
 * Times each operator of a function on a GPU, and copies between the GPU and the CPU: the column W_0 and the transfers
 * of Chrion's model (Yang et al., section 3).
 */
import { append, given } from '../../tools/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { Engine } from '../engine/engine.ts';
import type { GpuLane } from '../engine/lane.ts';
import { cancelled } from '../engine/mutex.ts';
import type { Residency } from '../engine/residency.ts';
import type { Program } from '../program/types.ts';
import { GpuError } from '../types.ts';
import { loadAllPlan } from './layer-profile.ts';
import { putInputs, spreadOf, timed } from './timing.ts';

/** Two programs of the same operators, with the weights of one function. */
export interface OperatorPrograms {
  /** With fusion, as the GPU's share of a plan is compiled. */
  readonly fused: Program;
  /** Without fusion: the label of each launch names its operator. */
  readonly single: Program;
}

export interface MeasureGpuOperatorsOptions {
  readonly gpu: number;
  /** Timed runs. Default 5. */
  readonly iterations?: number;
  /** The programs' inputs. */
  readonly inputs: readonly Tensor[];
  readonly signal?: AbortSignal;
}

export interface GpuOperatorTimes {
  /** Milliseconds by label, without operators that have no launch. */
  readonly operators: ReadonlyMap<string, number>;
  /** Of a warm run of the fused program, submitted launch by launch. */
  readonly warmMs: number;
}

/**
 * Times every operator by events around its launches, and scales the times so that they add up to a warm run of the
 * fused program. Loads the weights onto the GPU first and leaves them there.
 *
 * @throws GpuError
 */
export async function measureOperatorsOnGpu(
  engine: Engine,
  key: string,
  { fused, single }: OperatorPrograms,
  { gpu, iterations = 5, inputs, signal }: MeasureGpuOperatorsOptions,
): Promise<GpuOperatorTimes> {
  const readLayers = new Set(single.launches.flatMap(({ reads }) => reads));
  await engine.load(key, { gpu, plan: loadAllPlan(single, gpu, readLayers), ...given({ signal }) });
  const { lane, target, context } = engine.internals(key, gpu);
  const residency = target.residency(lane);
  using _residency = await residency.enter(signal);
  if ([...readLayers].some((layer) => !residency.has(layer))) throw cancelled();
  const data = new Map(inputs.map((tensor) => [tensor.name, tensor.data]));
  const session = { lane, residency, key, iterations, put: (program: Program) => put(lane, context.io, program, data) };
  try {
    const warm = await timeProgram(session, fused, [fused.launches.map((_, index) => index)]);
    const byOperator = new Map<string, number[]>();
    for (const [index, { label }] of single.launches.entries()) {
      append(byOperator, label, index);
    }
    const runs = await timeProgram(session, single, [...byOperator.values()]);
    const warmMs = spreadOf(warm.map(([ms = 0]) => ms)).medianMs;
    const times = [...byOperator.keys()].map((_, place) => spreadOf(runs.map((run) => run[place]!)).medianMs);
    const sumMs = times.reduce((sum, ms) => sum + ms, 0);
    const scale = sumMs > 0 ? warmMs / sumMs : 0;
    return { operators: new Map([...byOperator.keys()].map((label, place) => [label, times[place]! * scale])), warmMs };
  } finally {
    await engine.unbind(key, single.key);
    await engine.unbind(key, fused.key);
  }
}

function put(
  lane: GpuLane,
  io: Parameters<typeof putInputs>[1],
  program: Program,
  data: ReadonlyMap<string, Uint8Array>,
): Promise<void> {
  return putInputs(lane, io, program, ({ name }) => {
    const given = data.get(name);
    if (given !== undefined) return given;
    throw new GpuError('invalid', `input '${name}' is missing`);
  });
}

interface Session {
  readonly lane: GpuLane;
  readonly residency: Residency;
  readonly key: string;
  readonly iterations: number;
  readonly put: (program: Program) => Promise<void>;
}

/**
 * Milliseconds of each group of launches, by run. Launches keep the program's order, so the time of a group is the sum
 * over its pieces.
 */
async function timeProgram(
  { lane, residency, key, iterations, put: putProgramInputs }: Session,
  program: Program,
  groups: readonly (readonly number[])[],
): Promise<number[][]> {
  const binding = await lane.bind(key, program);
  using _lane = await lane.mutex.lock();
  const placeLayers = (): void => {
    for (const { index, bytes } of program.layout.layers) {
      if (bytes > 0 && residency.has(index)) binding.setLayer(index, residency.address(index), false);
    }
  };
  placeLayers();
  if (lane.prepareScratch(binding)) placeLayers();
  const groupOf = new Map(groups.flatMap((launches, group) => launches.map((launch) => [launch, group] as const)));
  const pieces: { readonly group: number; readonly submit: () => void }[] = [];
  for (let first = 0; first < program.launches.length;) {
    const group = groupOf.get(first)!;
    let end = first + 1;
    while (end < program.launches.length && groupOf.get(end) === group) end++;
    const [from, to] = [first, end];
    const submit = (): void => {
      for (let index = from; index < to; index++) binding.submit(index, lane.execution.cuda);
    };
    pieces.push({ group, submit });
    first = end;
  }
  const runs: number[][] = [];
  try {
    await putProgramInputs(program);
    // The first run is not timed, since kernels and algorithms are loaded at their first use.
    for (let run = -1; run < iterations; run++) {
      const times = await timed(
        lane,
        lane.execution,
        pieces.map(({ submit }) => submit),
      );
      if (run < 0) continue;
      const sums = groups.map(() => 0);
      for (const [piece, ms] of times.entries()) sums[pieces[piece]!.group]! += ms;
      runs.push(sums);
    }
    return runs;
  } finally {
    const fence = lane.execution.fence();
    residency.lastUse = fence;
    lane.used(fence);
    await lane.execution.finished();
  }
}

/** If so much memory is free. The bandwidth of smaller copies includes their latency. */
const largestBytes = 8 * 2 ** 20;
const leastBytes = 2 ** 16;
const smallBytes = 256;
const largeCopies = 8;
const smallCopies = 50;

/**
 * The cost of copies between host and GPU for a run that waits for them, measured on the execution stream, which runs
 * use for them.
 *
 * @throws GpuError 'out-of-memory'
 */
export async function measureCrossings(engine: Engine, key: string, gpu: number) {
  const { lane } = engine.internals(key, gpu);
  using _lane = await lane.mutex.lock();
  let largeBytes = largestBytes;
  let block = lane.allocate([largeBytes], 'staging')?.[0];
  while (block === undefined && largeBytes > leastBytes) {
    largeBytes /= 2;
    block = lane.allocate([largeBytes], 'staging')?.[0];
  }
  if (block === undefined) {
    throw new GpuError('out-of-memory', `GPU ${gpu} has no ${leastBytes} bytes free to time copies with`);
  }
  using buffer = await engine.allocateIo(largeBytes);
  const { execution } = lane;
  try {
    execution.waitForAll(block.fences);
    const toGpu = (bytes: number) => (): void => lane.copyFromHost(block.address, buffer.address, bytes);
    const toCpu = (bytes: number) => (): void => execution.cuda.copy(buffer.address, block.address, bytes);
    const both = Array.from({ length: largeCopies }, () => [toGpu(largeBytes), toCpu(largeBytes)]).flat();
    await timed(lane, execution, both);
    const largeMs = (await timed(lane, execution, both)).reduce((sum, ms) => sum + ms, 0);
    const there: number[] = [];
    const back: number[] = [];
    for (let copy = 0; copy < smallCopies; copy++) {
      let submitMs = 0;
      const submit = (): void => {
        const startMs = performance.now();
        toGpu(smallBytes)();
        submitMs = performance.now() - startMs;
      };
      const [copyMs = 0] = await timed(lane, execution, [submit]);
      there.push(submitMs + copyMs);
      const startMs = performance.now();
      toCpu(smallBytes)();
      await execution.finished();
      back.push(performance.now() - startMs);
    }
    return {
      /** GB/s (10^9 bytes per second), the mean of both directions, one copy after the other. */
      bandwidth: (both.length * largeBytes) / (largeMs * 1e6),
      /** Milliseconds of a copy of a few bytes; the mean of both directions. */
      latencyMs: (spreadOf(there).medianMs + spreadOf(back).medianMs) / 2,
    };
  } finally {
    lane.pool.free(block, [execution.fence()]);
  }
}
