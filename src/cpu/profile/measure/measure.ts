/**
 * Measures what a function costs on the cores of this machine: one instance alone by threads and batch (Packrat, 3.2),
 * like instances side by side (SERF, IV-B), and the lists of instances that could run each batch, all at once.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { ModelOpening, Sizes, TensorSpec } from '../../../onnx/index.ts';
import { declaredRows } from '../../../rows/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import { given } from '../../../tools/index.ts';
import { currentCore, handOverOrder, measuredSession } from '../../instance/index.ts';
import { leastDivided, listsToMeasure, type CpuProfile } from '../predict/index.ts';
import type { PoolGroup } from '../../types.ts';
import { Findings } from './findings.ts';
import { measuredOn } from './fingerprint.ts';
import { trialSizesOf } from './inputs.ts';
import { InstanceSet, measuredAs, type Measured } from './instance-set.ts';
import { batchesOf, powersOfTwo } from './reach.ts';
import { budgetMsOf, exhaustiveMs, labelOf, measurementMs, type Measurement } from './measurements.ts';
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
  /** What was found before: only what it lacks is measured. */
  readonly before?: CpuProfile | undefined;
  /**
   * No measurement begins that would end later, all sittings together; missing figures stay unknown. `auto`: by the
   * number of measurements, which cores and batches decide. Default: no limit.
   */
  readonly budgetMs?: number | 'auto';
  readonly onProgress?: (progress: MeasureProgress) => void;
  /** Told after each measurement what is known by then. */
  readonly onMeasured?: (soFar: CpuProfile) => void;
  /** Lines that the measured processes write. */
  readonly log?: (line: string) => void;
  readonly signal?: AbortSignal;
}

export interface MeasureProgress {
  readonly done: number;
  readonly total: number;
  /** What is measured now. */
  readonly label: string;
}

/** SERF takes ten samples of each (SERF, V-E); so do we for Packrat's latencies. */
const samplesDefault = 10;
const samplesMin = 3;
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

/**
 * Of the budget, the part after which no more of each kind begins: each kind gets its turn, so that a slow model on many
 * cores ends in a plan too.
 */
const budgetParts = { alone: 0.5, service: 0.8, dispatch: 0.8, lists: 1 } as const;

class MeasurementRun {
  readonly #options: MeasureOptions;
  readonly #set: InstanceSet;
  readonly #startedMs = performance.now();
  /** Those of the first trial, until another one has run. */
  #sizes: Sizes;
  /** To be tried if the model does not run with those. */
  readonly #trials: readonly Sizes[];
  readonly #cores: number;
  readonly #threads: readonly number[];
  readonly #batches: readonly number[];
  /** Rows that a run must have, where the model says so. */
  readonly #fixedRows: number | undefined;
  /** One request: a row, or as many as the model must have. */
  #request: readonly Tensor[] | undefined;
  readonly #random = randomSource();
  readonly #plan: readonly Measurement[];
  readonly #findings: Findings;
  readonly #samples: number;
  readonly #budgetMs: number;

  constructor(options: MeasureOptions) {
    this.#options = options;
    const { inputs, sockets, batchMax, modelPath, opening, before, log = () => undefined } = options;
    const spec = { key: 'measured', modelPath, threads: 1, ...given({ opening }) };
    this.#set = new InstanceSet({ spec, sockets, loadTimeoutMs, runTimeoutMs, log });
    [this.#sizes, ...this.#trials] = trialSizesOf(inputs, options.dimensions ?? {});
    this.#cores = sockets.reduce((sum, cores) => sum + cores.length, 0);
    const widest = Math.max(...sockets.map((cores) => cores.length));
    this.#threads = Array.from({ length: widest }, (_, index) => index + 1);
    const batches = batchesOf(inputs, batchMax);
    this.#batches = [...new Set([...batches, ...(before?.pool.batches ?? [])])].sort((a, b) => a - b);
    this.#fixedRows = declaredRows({ inputs }).kind === 'open' ? undefined : this.#batches[0];
    this.#findings = new Findings(before);
    this.#samples = options.samples ?? samplesDefault;
    this.#plan = this.#planned();
    this.#budgetMs = options.budgetMs === 'auto' ? budgetMsOf(this.#plan) : (options.budgetMs ?? Infinity);
  }

  stop(): void {
    this.#set.stop();
  }

  async profile(): Promise<CpuProfile> {
    for (const [done, measurement] of this.#plan.entries()) {
      if (this.#findings.has(measurement) || !this.#mayBegin(measurement)) continue;
      const { onProgress, onMeasured } = this.#options;
      onProgress?.({ done, total: this.#plan.length, label: labelOf(measurement) });
      await this.#measure(measurement);
      onMeasured?.(this.#soFar('interrupted'));
    }
    return this.#soFar(this.#plan.every((measurement) => this.#findings.has(measurement)) ? 'whole' : 'budget');
  }

  #soFar(ended: CpuProfile['ended']): CpuProfile {
    const { modelSha256, before } = this.#options;
    const { startsMs } = this.#set;
    const { variation, idle, lists, dispatchMs = 0 } = this.#findings;
    const configurations = this.#findings.configurations(this.#threads, this.#batches[0]!);
    return {
      format: 3,
      provenance: 'measured',
      machine: measuredOn(this.#cores),
      modelSha256,
      dimensions: this.#sizes,
      session: measuredSession(measuredAs),
      ended,
      measuredAt: new Date().toISOString(),
      tookMs: this.#spentMs,
      exhaustiveMs: exhaustiveMs(configurations, lists),
      startMs: startsMs.length > 0 ? median(startsMs) : (before?.startMs ?? 0),
      ...this.#findings.tables(this.#threads, this.#batches),
      service: { unit: 'ms', configurations },
      variation: [...variation],
      dispatchMs,
      idle: [...idle],
      lists: [...lists],
    };
  }

  /** In all sittings. */
  get #spentMs(): number {
    return (this.#options.before?.tookMs ?? 0) + performance.now() - this.#startedMs;
  }

  #mayBegin(measurement: Measurement): boolean {
    // One row on one thread is always measured: without it nothing is known.
    if (measurement === this.#plan[0]) return true;
    return this.#spentMs < budgetParts[measurement.kind] * this.#budgetMs;
  }

  async #measure(measurement: Measurement): Promise<void> {
    switch (measurement.kind) {
      case 'alone':
        await this.#alone(measurement.threads, measurement.batch);
        return;
      case 'service':
        await this.#sideBySide(measurement.threads);
        return;
      case 'dispatch':
        await this.#dispatch();
        return;
      case 'lists':
        await this.#lists(measurement.batch);
    }
  }

  async #alone(threads: number, batch: number): Promise<void> {
    const [instance] = await this.#set.acquire([threads]);
    const requests = await this.#requestsOf(batch, instance!);
    const samples = await this.#sample(async () => await this.#set.run(instance!, requests));
    this.#findings.alone(threads, batch, median(samples), relativeSpread(samples));
  }

  /** Like instances, one request each, k of them at work: k by powers of two, and as many as there are cores for. */
  async #sideBySide(threads: number): Promise<void> {
    const concurrencies = this.#concurrencies(threads);
    const instances = await this.#set.acquire(Array.from({ length: Math.max(...concurrencies) }, () => threads));
    const requests = await this.#requestsOf(this.#smallest, instances[0]!);
    const { busyMs, variation, idle } = await measureServiceTimes({
      workers: instances,
      concurrencies,
      run: async (instance) => await this.#set.run(instance, requests),
      samples: samplesFactor * this.#samples,
      limitMs: concurrencies.length * measurementMs,
      random: this.#random,
    });
    this.#findings.besides(
      concurrencies.map((concurrency) => ({
        concurrency,
        threads,
        serviceTime: Array.from({ length: concurrency }, (_, at) => between(busyMs, at + 1)),
      })),
      Array.from(variation, ([concurrency, squared]) => ({ concurrency, threads, squared })),
      idle.map(({ gapMs, extraMs }) => ({ threads, gapMs, extraMs })),
    );
  }

  async #dispatch(): Promise<void> {
    const { modelPath, opening, log = () => undefined, signal } = this.#options;
    const [instance] = await this.#set.acquire([1]);
    const [tensors] = await this.#requestsOf(this.#smallest, instance!);
    const samples = samplesFactor * this.#samples;
    const order = { modelPath, opening, tensors: tensors!, samples, timeoutMs: runTimeoutMs, log, signal };
    this.#findings.dispatchMs = await measureDispatchMs(order);
  }

  /** The lists that could run a batch, taking turns, so that disturbances of the machine affect them alike. */
  async #lists(batch: number): Promise<void> {
    const sockets = this.#options.sockets.map((cores) => cores.length);
    const lists = listsToMeasure(this.#findings.tables(this.#threads, this.#batches), {
      cores: this.#cores,
      sockets,
      batch,
    });
    const samples: number[][] = lists.map(() => []);
    if (lists.length > 0) {
      await this.#sample(async (turn) => {
        let sum = 0;
        for (let offset = 0; offset < lists.length; offset++) {
          // Each list goes first equally often.
          const at = (turn + offset) % lists.length;
          const latencyMs = await this.#runList(lists[at]!.groups);
          sum += latencyMs;
          if (turn > 0) samples[at]!.push(latencyMs);
        }
        return sum;
      }, samplesFactor);
    }
    const fat = leastDivided(lists);
    const results = lists.map(({ groups, expectedMs }, at) => ({
      batch,
      groups,
      latencyMs: median(samples[at]!),
      expectedMs,
      aheadShare: at === fat ? 1 : aheadShare(samples[at]!, samples[fat]!),
    }));
    results.sort((a, b) => a.latencyMs - b.latencyMs);
    this.#findings.divided(batch, results);
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
    const wanted = factor * this.#samples;
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

  /** The most important first. */
  #planned(): Measurement[] {
    const threads = this.#threads;
    // With a fixed batch each request is a run of its own: there is nothing to divide.
    const divided = this.#fixedRows === undefined ? this.#batches : [];
    return [
      ...this.#batches.flatMap((batch) => threads.map((count) => ({ kind: 'alone', threads: count, batch }) as const)),
      ...threads.map((count) => this.#serviceOf(count)),
      { kind: 'dispatch' },
      ...divided.map((batch) => ({ kind: 'lists', batch }) as const),
    ];
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
}

/** Numbers in [0, 1), the same every time: a Weyl sequence by the golden ratio. */
function randomSource(): () => number {
  let state = 0;
  return () => (state = (state + 0.618_033_988_75) % 1);
}
