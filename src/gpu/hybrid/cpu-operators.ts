/**
 * What each operator of a model takes on one CPU core while 1, 2, ... k cores run the same model: the columns W_1 to
 * W_k of Chrion's matrix (Yang et al., section 3), from ONNX Runtime's own profile.
 */
import type { Tensor } from '../../tensor/index.ts';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { getOrMake } from '../../tools/index.ts';
import { askOnce, compiledModule, plainError, startThread } from '../../process/index.ts';
import { GpuError } from '../types.ts';
import { signalAt, signalCount, type CpuOperatorsOptions, type CpuOperatorTimes } from './cpu-operators-protocol.ts';

const module = compiledModule('./cpu-operators-thread.js', import.meta.url);

export interface CpuOperatorProgress {
  /** Numbers of busy cores that were measured, and that are to be measured. */
  readonly done: number;
  readonly total: number;
  readonly busyCores: number;
}

export interface MeasureCpuOperatorsOptions {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** The names of the nodes to be timed. */
  readonly nodes: readonly string[];
  /** Most cores that are busy at once, from 1 on. */
  readonly cores: number;
  /** The operating system's numbers of the cores to measure on; those beyond are not pinned. */
  readonly pinTo?: readonly number[];
  /** Timed runs, fewer of a model that takes long. Default 10. */
  readonly iterations?: number;
  readonly onProgress?: (progress: CpuOperatorProgress) => void;
  readonly signal?: AbortSignal;
}

/**
 * Milliseconds by node name, for 1 to `cores` busy cores. Measured are 1, 2, 4, ... and `cores` busy cores, all cores
 * at once; what lies between is on the line between its neighbours.
 *
 * The profile is that of the graph as it stands, where nodes have their names; times are scaled so that they add up to
 * a run of the optimised graph without a profile, which is how sub-graphs are run.
 *
 * @throws GpuError 'invalid' when ONNX Runtime refuses the model, 'cancelled'
 */
export async function measureOperatorsOnCpu(options: MeasureCpuOperatorsOptions): Promise<Map<string, number[]>> {
  const { cores, nodes, onProgress } = options;
  const counts = busyCounts(cores);
  const measured: Map<string, number>[] = [];
  for (const [done, busyCores] of counts.entries()) {
    onProgress?.({ done, total: counts.length, busyCores });
    measured.push(await measureBusy(options, busyCores));
  }
  onProgress?.({ done: counts.length, total: counts.length, busyCores: cores });
  return new Map(
    nodes.map((node) => [
      node,
      interpolated(
        counts,
        measured.map((times) => times.get(node)!),
      ),
    ]),
  );
}

/** 1, 2, 4, ... and the most. */
function busyCounts(cores: number): number[] {
  if (!Number.isSafeInteger(cores) || cores < 1) {
    throw new GpuError('invalid', `operators cannot be timed on ${cores} cores: it takes a whole number, 1 or more`);
  }
  const counts: number[] = [];
  for (let count = 1; count < cores; count *= 2) counts.push(count);
  return [...counts, cores];
}

/** Values at 1, 2, ... up to the last of `places`, between which those at `places` are known. */
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

async function measureBusy(options: MeasureCpuOperatorsOptions, threads: number): Promise<Map<string, number>> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-operators-'));
  try {
    const found = await runThreads(options, threads, folder);
    return combine(options.nodes, found);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function runThreads(
  { modelPath, inputs, iterations = 10, pinTo = [], signal }: MeasureCpuOperatorsOptions,
  threads: number,
  folder: string,
): Promise<CpuOperatorTimes[]> {
  mustGoOn(signal);
  const signals = new Int32Array(new SharedArrayBuffer(4 * signalCount));
  /** A thread inside of ONNX Runtime must not be terminated: it sees this after its run, and leaves. */
  const stop = (): void => void Atomics.store(signals, signalAt.stop, 1);
  signal?.addEventListener('abort', stop, { once: true });
  try {
    const outcomes = await Promise.allSettled(
      Array.from({ length: threads }, async (_, index) => {
        const own = join(folder, String(index));
        await mkdir(own);
        const pinned = pinTo[index] ?? null;
        return await runThread({ modelPath, inputs, iterations, folder: own, pinTo: pinned, threads, signals });
      }),
    );
    mustGoOn(signal);
    return outcomes.map((outcome) => {
      if (outcome.status === 'fulfilled') return outcome.value;
      const { message } = outcome.reason as Error;
      throw new GpuError('invalid', `${basename(modelPath)} cannot be timed on the CPU: ${message}`);
    });
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

async function runThread(options: CpuOperatorsOptions): Promise<CpuOperatorTimes> {
  try {
    return await askOnce(
      (events) => startThread({ module, name: 'operators', ends: 'between-messages' }, events),
      options,
      plainError('its thread'),
    );
  } catch (error) {
    // The others would wait for it.
    Atomics.store(options.signals, signalAt.stop, 1);
    throw error;
  }
}

/** One time for each node out of all runs of all threads. */
function combine(nodes: readonly string[], found: readonly CpuOperatorTimes[]): Map<string, number> {
  const samples = new Map<string, number[]>();
  for (const { nodes: timed } of found) {
    for (const [name, times] of timed) {
      getOrMake(samples, name, (): number[] => []).push(...times);
    }
  }
  const middles = new Map([...samples].map(([name, times]) => [name, middleMean(times)]));
  const own = new Set(nodes);
  const missing = nodes.filter((node) => !middles.has(node));
  // Operators that ONNX Runtime replaces by several, under names of its own, have what those take.
  let othersMs = 0;
  for (const [name, ms] of middles) if (!own.has(name)) othersMs += ms;
  const times = new Map(nodes.map((node) => [node, middles.get(node) ?? othersMs / missing.length]));
  let sumMs = 0;
  for (const ms of times.values()) sumMs += ms;
  const wholeMs = middleMean(found.flatMap(({ whole }) => [...whole]));
  // A model of views alone may take less than the profile's microseconds can tell.
  if (sumMs === 0) return new Map(nodes.map((node) => [node, wholeMs / nodes.length]));
  return new Map([...times].map(([node, ms]) => [node, ms * (wholeMs / sumMs)]));
}

/** The mean of the middle half: as steady as the median, and finer than the whole microseconds of the profile. */
function middleMean(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  const skipped = Math.floor(sorted.length / 4);
  const middle = sorted.slice(skipped, sorted.length - skipped);
  return middle.reduce((sum, ms) => sum + ms, 0) / middle.length;
}

function mustGoOn(signal: AbortSignal | undefined): void {
  if (signal?.aborted === true) throw new GpuError('cancelled', 'the operators are no longer to be timed');
}
