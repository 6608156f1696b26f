/**
 * Times each operator of a model on one CPU core while 1, 2, ... k cores run the same model: the columns W_1 to W_k of
 * Chrion's matrix (Yang et al., section 3), from ONNX Runtime's profile.
 */
import type { Tensor } from '../../tensor/index.ts';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getOrMake } from '../../tools/index.ts';
import { GpuError } from '../types.ts';
import { signalAt, signalCount, type OperatorTimes } from './cpu-core-protocol.ts';
import { CpuCores } from './cpu-cores.ts';

export interface OperatorProgress {
  /** Measurements that are done, of `total`; each has another number of busy cores. */
  readonly done: number;
  readonly total: number;
  /** The current measurement. */
  readonly label: string;
}

export interface CpuTimingOptions {
  /** The largest number of busy cores, at least 1. */
  readonly cores: number;
  /** The operating system's numbers of the cores. Further threads are not pinned. */
  readonly coreNumbers?: readonly number[];
  /** Timed runs, fewer for a slow model. Default 10, and 5 on a GPU. */
  readonly iterations?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: OperatorProgress) => void;
}

interface TimedModel {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** Names of the nodes to time. */
  readonly nodes: readonly string[];
}

/**
 * Milliseconds by node name, for 1 to `cores` busy cores. 1, 2, 4, ... and `cores` busy cores are measured, the numbers
 * between are interpolated linearly.
 *
 * The unoptimised graph is profiled, since only there nodes keep their names. Times are scaled so that they add up to a
 * run of the optimised graph without a profile, which is how sub-graphs run.
 *
 * @throws GpuError 'invalid' when ONNX Runtime refuses the model, 'cancelled'
 */
export async function measureOperatorsOnCpu(
  model: TimedModel,
  options: CpuTimingOptions,
): Promise<Map<string, number[]>> {
  const { cores, onProgress } = options;
  const counts = busyCounts(cores);
  const measured: Map<string, number>[] = [];
  const tell = (done: number, busyCores: number): void => {
    const label = `on the CPU, ${busyCores} ${busyCores === 1 ? 'core' : 'cores'} busy`;
    onProgress?.({ done, total: counts.length, label });
  };
  for (const [done, busyCores] of counts.entries()) {
    tell(done, busyCores);
    measured.push(await measureBusy(model, options, busyCores));
  }
  tell(counts.length, cores);
  return new Map(
    model.nodes.map((node) => [
      node,
      interpolated(
        counts,
        measured.map((times) => times.get(node)!),
      ),
    ]),
  );
}

/** 1, 2, 4, ... and `cores`. */
function busyCounts(cores: number): number[] {
  if (!Number.isSafeInteger(cores) || cores < 1) {
    throw new GpuError('invalid', `operators cannot be timed on ${cores} cores: it takes a whole number, 1 or more`);
  }
  const counts: number[] = [];
  for (let count = 1; count < cores; count *= 2) counts.push(count);
  return [...counts, cores];
}

/** Values at 1, 2, ... up to the last of `places`, by linear interpolation between those at `places`. */
function interpolated(places: readonly number[], values: readonly number[]): number[] {
  return Array.from({ length: places.at(-1)! }, (_, index) => {
    const place = index + 1;
    const after = places.findIndex((each) => each >= place);
    const [high, before] = [places[after]!, places[after - 1]];
    if (high === place || before === undefined) return values[after]!;
    const share = (place - before) / (high - before);
    return values[after - 1]! * (1 - share) + values[after]! * share;
  });
}

async function measureBusy(
  model: TimedModel,
  options: CpuTimingOptions,
  busyCores: number,
): Promise<Map<string, number>> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-operators-'));
  try {
    return combine(model.nodes, await timeOnCores(model, options, busyCores, folder));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function timeOnCores(
  { modelPath, inputs }: TimedModel,
  { iterations = 10, coreNumbers = [], signal }: CpuTimingOptions,
  busyCores: number,
  folder: string,
): Promise<OperatorTimes[]> {
  mustGoOn(signal);
  const signals = new Int32Array(new SharedArrayBuffer(4 * signalCount));
  /** A thread must not be terminated inside ONNX Runtime. It reads this signal after each run, and ends. */
  const stop = (): void => void Atomics.store(signals, signalAt.stop, 1);
  signal?.addEventListener('abort', stop, { once: true });
  const cores = new CpuCores({ count: busyCores, cores: coreNumbers });
  const timeOn = async (core: number): Promise<OperatorTimes> => {
    const own = join(folder, String(core));
    await mkdir(own);
    return await cores.core(core).time({ modelPath, inputs, iterations, folder: own, cores: busyCores, signals });
  };
  try {
    const timed = Array.from({ length: busyCores }, async (_, index) => {
      try {
        return await timeOn(index + 1);
      } catch (error) {
        // The other cores would wait for this one.
        stop();
        throw error;
      }
    });
    await Promise.allSettled(timed);
    mustGoOn(signal);
    return await Promise.all(timed);
  } finally {
    signal?.removeEventListener('abort', stop);
    await cores.close();
  }
}

/** One time for each node, from all runs of all cores. */
function combine(nodes: readonly string[], found: readonly OperatorTimes[]): Map<string, number> {
  const samples = new Map<string, number[]>();
  for (const { nodes: timed } of found) {
    for (const [name, times] of timed) {
      getOrMake(samples, name, (): number[] => []).push(...times);
    }
  }
  const middles = new Map([...samples].map(([name, times]) => [name, middleMean(times)]));
  const own = new Set(nodes);
  const missing = nodes.filter((node) => !middles.has(node));
  // ONNX Runtime replaces some operators by several with new names: the time of these goes to the missing nodes.
  let othersMs = 0;
  for (const [name, ms] of middles) if (!own.has(name)) othersMs += ms;
  const times = new Map(nodes.map((node) => [node, middles.get(node) ?? othersMs / missing.length]));
  let sumMs = 0;
  for (const ms of times.values()) sumMs += ms;
  const wholeMs = middleMean(found.flatMap(({ whole }) => [...whole]));
  // A model of views alone may take less than a microsecond, the unit of the profile.
  if (sumMs === 0) return new Map(nodes.map((node) => [node, wholeMs / nodes.length]));
  return new Map([...times].map(([node, ms]) => [node, ms * (wholeMs / sumMs)]));
}

/** The mean of the middle half: as robust as the median, and finer than the profile's whole microseconds. */
function middleMean(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  const skipped = Math.floor(sorted.length / 4);
  const middle = sorted.slice(skipped, sorted.length - skipped);
  return middle.reduce((sum, ms) => sum + ms, 0) / middle.length;
}

function mustGoOn(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new GpuError('cancelled', 'the timing of operators was cancelled');
}
