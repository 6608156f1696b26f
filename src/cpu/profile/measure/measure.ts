/**
 * Measures what a function costs on the cores of this machine: one instance alone by threads and batch (Packrat, 3.2),
 * like instances side by side (SERF, IV-B), and the lists of instances that could run each batch, all at once.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { ModelOpening, Sizes, TensorSpec } from '../../../onnx/index.ts';
import type { ServiceConfiguration } from '../../../profile/index.ts';
import { declaredRows } from '../../../rows/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import { given } from '../../../tools/index.ts';
import { currentCore } from '../../instance/affinity.ts';
import {
  leastDivided,
  listsToMeasure,
  type CpuProfile,
  type IdleCost,
  type MeasuredList,
  type ServiceVariation,
} from '../predict/index.ts';
import { handOverOrder } from '../../pool/split.ts';
import type { PoolGroup } from '../../types.ts';
import { measuredOn } from './fingerprint.ts';
import { trialSizesOf } from './inputs.ts';
import { InstanceSet, type Measured } from './instance-set.ts';
import { batchesOf, powersOfTwo } from './reach.ts';
import { exhaustiveMs, labelOf, RemainingTime, type Measurement } from './remaining-time.ts';
import { aheadShare, between, median, relativeSpread } from './samples.ts';
import { measureDispatchMs } from './dispatch-time.ts';
import { firstThatRuns, trialRuns } from './trial-runs.ts';
import { measureServiceTimes } from './service-times.ts';

export interface MeasureOptions {
  readonly modelPath: string;
  /** How it is opened; default: its file as it is. */
  readonly opening?: ModelOpening | undefined;
  readonly modelSha256: string;
  readonly inputs: readonly TensorSpec[];
  /** Sizes of open dimensions, by the model's names; others take their defaults. */
  readonly dimensions?: Readonly<Record<string, number>>;
  /** Cores to measure on, by socket: the operating system's numbers. */
  readonly sockets: readonly (readonly number[])[];
  /** Largest batch, a power of two. */
  readonly batchMax: number;
  /** Samples of each measurement, at most; long runs are sampled less. */
  readonly samples?: number;
  /** No further measurement begins after this long; missing figures stay unknown. */
  readonly budgetMs?: number;
  readonly onProgress?: (progress: MeasureProgress) => void;
  /** Lines that the measured processes write. */
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal;
}

export interface MeasureProgress {
  readonly done: number;
  readonly total: number;
  /** What is measured now. */
  readonly label: string;
  /** Estimate of the time left, milliseconds. */
  readonly leftMs: number;
}

/** SERF takes ten samples of each (SERF, V-E); so do we for Packrat's latencies. */
const samplesDefault = 10;
const samplesMin = 3;
/** One measurement stops after this long, but not before three samples. */
const measurementMs = 1500;
/**
 * Samples of a service time or a comparison for each sample of the rest: more depends on them, and they tell finer
 * differences.
 */
const samplesFactor = 2;
/** A process and its core reach their full speed after so long and so many runs. */
const warmMs = 50;
const warmRunsMax = 10;
/** By then the threads of the last list have stopped spinning. */
const betweenListsMs = 3;
const loadTimeoutMs = 120_000;
const runTimeoutMs = 120_000;

/**
 * Rejects with a CpuError: `stopping` where `signal` ended it, `model-load-failed`, or `inference-input` for a
 * model that does not run on the inputs that were made for it.
 */
export async function measureCpu(options: MeasureOptions): Promise<CpuProfile> {
  const run = new MeasurementRun(options);
  const stop = (): void => run.stop();
  options.signal?.addEventListener('abort', stop);
  try {
    if (options.signal?.aborted === true) stop();
    return await run.profile();
  } finally {
    options.signal?.removeEventListener('abort', stop);
    run.stop();
  }
}

type SideBySide = Pick<CpuProfile, 'variation' | 'idle' | 'dispatchMs'> & {
  readonly configurations: readonly ServiceConfiguration[];
};

class MeasurementRun {
  readonly #options: MeasureOptions;
  readonly #set: InstanceSet;
  readonly #startedMs = performance.now();
  /** Those of the first trial, until another one has run. */
  #sizes: Sizes;
  /** To be tried if the model does not run with those. */
  readonly #trials: readonly Sizes[];
  readonly #cores: number;
  readonly #widest: number;
  readonly #batches: readonly number[];
  /** Rows that a run must have, where the model says so. */
  readonly #fixedRows: number | undefined;
  /** One request: a row, or as many as the model must have. */
  #request: readonly Tensor[] | undefined;
  readonly #random = randomSource();
  readonly #plan: Measurement[];
  readonly #remaining: RemainingTime;
  #done = 0;

  constructor(options: MeasureOptions) {
    this.#options = options;
    const { inputs, sockets, batchMax, modelPath, opening, log = () => undefined } = options;
    const spec = { key: 'measured', modelPath, threads: 1, ...given({ opening }) };
    this.#set = new InstanceSet({ spec, sockets, loadTimeoutMs, runTimeoutMs, log });
    [this.#sizes, ...this.#trials] = trialSizesOf(inputs, options.dimensions ?? {});
    this.#cores = sockets.reduce((sum, cores) => sum + cores.length, 0);
    this.#widest = Math.max(...sockets.map((cores) => cores.length));
    this.#batches = batchesOf(inputs, batchMax);
    this.#fixedRows = declaredRows({ inputs }).kind === 'open' ? undefined : this.#batches[0];
    this.#plan = this.#planned();
    this.#remaining = new RemainingTime(this.#plan, options.samples ?? samplesDefault, measurementMs);
  }

  stop(): void {
    this.#set.stop();
  }

  async profile(): Promise<CpuProfile> {
    const threads = Array.from({ length: this.#widest }, (_, index) => index + 1);
    const alone = await this.#alone(threads);
    const pool: CpuProfile['pool'] = {
      unit: 'ms',
      threads,
      batches: this.#batches,
      latency: alone.map((row) => row.map((samples) => (samples === undefined ? null : median(samples)))),
    };
    const spread = alone.map((row) =>
      row.map((samples) => (samples === undefined ? null : Number(relativeSpread(samples).toFixed(4)))),
    );
    const service = await this.#sideBySide(threads, alone);
    const { configurations } = service;
    const lists = await this.#lists({ pool });
    const profile: CpuProfile = {
      format: 2,
      provenance: 'measured',
      machine: measuredOn(this.#cores),
      modelSha256: this.#options.modelSha256,
      dimensions: this.#sizes,
      measuredAt: new Date().toISOString(),
      tookMs: performance.now() - this.#startedMs,
      exhaustiveMs: exhaustiveMs(configurations, lists),
      startMs: median(this.#set.startsMs),
      pool,
      spread,
      service: { unit: 'ms', configurations },
      variation: service.variation,
      dispatchMs: service.dispatchMs,
      idle: service.idle,
      lists,
    };
    return profile;
  }

  /** One instance alone: for each number of threads the samples of each batch. */
  async #alone(threads: readonly number[]): Promise<(number[] | undefined)[][]> {
    const rows: (number[] | undefined)[][] = [];
    for (const count of threads) {
      const row: (number[] | undefined)[] = [];
      for (const batch of this.#batches) {
        // One row on one thread is always measured: without it nothing is known.
        if (this.#isOverBudget() && (count > 1 || batch !== this.#batches[0])) {
          row.push(undefined);
          continue;
        }
        this.#tell({ kind: 'alone', threads: count, batch });
        const [instance] = await this.#set.acquire([count]);
        const requests = await this.#requestsOf(batch, instance!);
        const samples = await this.#sample(async () => await this.#set.run(instance!, requests));
        row.push(samples);
        this.#measured({ kind: 'alone', threads: count, batch }, median(samples));
      }
      rows.push(row);
    }
    return rows;
  }

  /** Like instances, one request each, k of them at work: k by powers of two, and as many as there are cores for. */
  async #sideBySide(
    threads: readonly number[],
    alone: readonly (readonly (number[] | undefined)[])[],
  ): Promise<SideBySide> {
    const configurations: ServiceConfiguration[] = [];
    const variation: ServiceVariation[] = [];
    const idle: IdleCost[] = [];
    const samples = samplesFactor * (this.#options.samples ?? samplesDefault);
    for (const [index, count] of threads.entries()) {
      const single = alone[index]?.[0];
      if (single === undefined) continue;
      let known: ReadonlyMap<number, number> = new Map([[1, median(single)]]);
      if (!this.#isOverBudget()) {
        const concurrencies = this.#concurrencies(count);
        const measurement = this.#serviceOf(count);
        this.#tell(measurement);
        const instances = await this.#set.acquire(Array.from({ length: Math.max(...concurrencies) }, () => count));
        const requests = await this.#requestsOf(this.#smallest, instances[0]!);
        const times = await measureServiceTimes({
          workers: instances,
          concurrencies,
          run: async (instance) => await this.#set.run(instance, requests),
          samples,
          limitMs: concurrencies.length * measurementMs,
          random: this.#random,
        });
        known = times.busyMs;
        for (const [concurrency, squared] of times.variation) variation.push({ concurrency, threads: count, squared });
        idle.push(...times.idle.map(({ gapMs, extraMs }) => ({ threads: count, gapMs, extraMs })));
        this.#measured(measurement, known.get(1) ?? median(single));
      }
      for (const concurrency of known.keys()) {
        const serviceTime = Array.from({ length: concurrency }, (_, at) => between(known, at + 1));
        configurations.push({ concurrency, threads: count, serviceTime });
      }
    }
    return { configurations, variation, idle, dispatchMs: await this.#dispatchMs() };
  }

  /** 0 if there is no time left for it: it is a small part. */
  async #dispatchMs(): Promise<number> {
    const { modelPath, opening, samples = samplesDefault, log = () => undefined, signal } = this.#options;
    if (this.#request === undefined || this.#isOverBudget()) return 0;
    return await measureDispatchMs({
      modelPath,
      opening,
      tensors: this.#request,
      samples: samplesFactor * samples,
      timeoutMs: runTimeoutMs,
      log,
      signal,
    });
  }

  /** The lists that could run each batch, taking turns, so that disturbances of the machine affect them alike. */
  async #lists(profile: Pick<CpuProfile, 'pool'>): Promise<MeasuredList[]> {
    const measured: MeasuredList[] = [];
    const sockets = this.#options.sockets.map((cores) => cores.length);
    for (const batch of this.#listBatches()) {
      const measurement = { kind: 'lists', batch } as const;
      const lists = listsToMeasure(profile, { cores: this.#cores, sockets, batch });
      if (this.#isOverBudget() || lists.length === 0) continue;
      this.#tell(measurement);
      const samples: number[][] = lists.map(() => []);
      const turns = await this.#sample(async (turn) => {
        let sum = 0;
        for (let offset = 0; offset < lists.length; offset++) {
          // Each list goes first equally often.
          const at = (turn + offset) % lists.length;
          const { groups } = lists[at]!;
          const latencyMs = await this.#runList(groups);
          sum += latencyMs;
          if (turn > 0) samples[at]!.push(latencyMs);
        }
        return sum;
      }, samplesFactor);
      const fat = leastDivided(lists);
      const results = lists.map(({ groups, expectedMs }, at) => ({
        batch,
        groups,
        latencyMs: median(samples[at]!),
        expectedMs,
        aheadShare: at === fat ? 1 : aheadShare(samples[at]!, samples[fat]!),
      }));
      measured.push(...results.sort((a, b) => a.latencyMs - b.latencyMs));
      this.#measured(measurement, median(turns));
    }
    return measured;
  }

  /** Milliseconds until the slowest instance of a list is done. */
  async #runList(groups: readonly PoolGroup[]): Promise<number> {
    const places = groups.flatMap(({ instances, threads, batch }) =>
      Array.from({ length: instances }, () => ({ threads, batch })),
    );
    const instances = await this.#set.acquire(
      places.map(({ threads }) => threads),
      true,
    );
    const requests: (readonly (readonly Tensor[])[])[] = [];
    for (const { batch } of places) requests.push(await this.#requestsOf(batch, instances[0]!));
    await pause(betweenListsMs);
    const cores = instances.map((instance) => instance.cores);
    const order = handOverOrder(cores, instances.length > 1 ? currentCore() : undefined);
    const startMs = performance.now();
    await Promise.all(order.map((at) => this.#set.run(instances[at]!, requests[at]!)));
    return performance.now() - startMs;
  }

  /** Runs to warm up, as turn 0, then as many as the time allows, from turn 1 on. */
  async #sample(measure: (turn: number) => Promise<number>, factor = 1): Promise<number[]> {
    const wanted = factor * (this.#options.samples ?? samplesDefault);
    const warmFromMs = performance.now();
    for (let run = 0; run < warmRunsMax && (run === 0 || performance.now() - warmFromMs < warmMs); run++) {
      await measure(0);
    }
    const startMs = performance.now();
    const samples: number[] = [];
    while (samples.length < wanted) {
      samples.push(await measure(samples.length + 1));
      if (samples.length >= samplesMin && performance.now() - startMs > factor * measurementMs) break;
    }
    return samples;
  }

  /**
   * What a batch of so many rows consists of when it comes to a pool: one request for each row, if the model takes
   * that.
   */
  async #requestsOf(rows: number, instance: Measured): Promise<readonly (readonly Tensor[])[]> {
    const count = this.#fixedRows === undefined ? rows : rows / this.#fixedRows;
    const request = (this.#request ??= await this.#makeRequest(instance));
    return Array.from({ length: count }, () => request);
  }

  async #makeRequest(instance: Measured): Promise<readonly Tensor[]> {
    const trials = trialRuns(this.#options.inputs, this.#fixedRows ?? 1, [this.#sizes, ...this.#trials]);
    const { tensors, sizes } = await firstThatRuns(trials, (each) => this.#set.run(instance, [each]));
    this.#sizes = sizes;
    return tensors;
  }

  #planned(): Measurement[] {
    const plan: Measurement[] = [];
    for (let threads = 1; threads <= this.#widest; threads++) {
      for (const batch of this.#batches) plan.push({ kind: 'alone', threads, batch });
    }
    for (let threads = 1; threads <= this.#widest; threads++) plan.push(this.#serviceOf(threads));
    for (const batch of this.#listBatches()) plan.push({ kind: 'lists', batch });
    return plan;
  }

  /** With a fixed batch each request is a run of its own: there is nothing to divide. */
  #listBatches(): readonly number[] {
    return this.#fixedRows === undefined ? this.#batches : [];
  }

  /** Rows of the smallest request. */
  get #smallest(): number {
    return this.#fixedRows ?? 1;
  }

  #serviceOf(threads: number): Measurement & { kind: 'service' } {
    return { kind: 'service', threads, batch: this.#smallest, levels: this.#concurrencies(threads).length };
  }

  #concurrencies(threads: number): number[] {
    const most = this.#options.sockets.reduce((sum, cores) => sum + Math.floor(cores.length / threads), 0);
    return [...new Set([...powersOfTwo(most), most])];
  }

  #isOverBudget(): boolean {
    return performance.now() - this.#startedMs > (this.#options.budgetMs ?? Infinity);
  }

  #tell(measurement: Measurement): void {
    this.#options.onProgress?.({
      done: this.#done,
      total: this.#plan.length,
      label: labelOf(measurement),
      leftMs: this.#remaining.leftMs(),
    });
  }

  #measured(measurement: Measurement, runMs: number): void {
    this.#done++;
    this.#remaining.measured(measurement, runMs);
  }
}

/** Numbers in [0, 1), the same every time: a Weyl sequence by the golden ratio. */
function randomSource(): () => number {
  let state = 0;
  return () => (state = (state + 0.618_033_988_75) % 1);
}
