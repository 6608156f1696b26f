/**
 * The ledger of the traffic. Each invocation and each request is counted here once, when it has ended: in plain numbers
 * since the host's start, which `/metrics` and the statistics endpoint read on demand, and over time in the history.
 * This is on the path of every request, so nothing here hashes labels or allocates.
 */
import type { PoolTimings } from '../../cpu/index.ts';
import type { ErrorCode, HostError } from '../errors.ts';
import { History } from '../history/index.ts';
import { accounted, reasonOf, type FailureReason } from '../calls/invoke-failures.ts';
import type { MissCause } from '../calls/miss-causes.ts';
import {
  isColdStart,
  type InvocationRecord,
  type InvocationRecorder,
  type Outcome,
  type Placement,
} from '../calls/placement.ts';
import type { FunctionVersion } from '../types.ts';
import { count, getOrMake } from '../../tools/index.ts';

/** Upper bounds in seconds, from a fifth of the fastest warm call to the longest cold start. */
export const secondsBuckets = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
] as const;
/** Upper bounds in milliseconds, for series in milliseconds. */
export const millisecondsBuckets = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4] as const;
/** Upper bounds in milliseconds of an age: from a second to a day. */
export const ageBuckets = [1e3, 1e4, 6e4, 3e5, 9e5, 3.6e6, 1.08e7, 4.32e7, 8.64e7] as const;

/** Upper bounds in bytes: from a megabyte to 16 GB. */
export const bytesBuckets = [1e6, 4e6, 1.6e7, 6.4e7, 1.28e8, 2.56e8, 5.12e8, 1e9, 2e9, 4e9, 8e9, 1.6e10] as const;

/** Upper bounds in bytes of a message: from 128 bytes to 256 MB. */
const payloadBuckets = [128, 512, 2048, 8192, 32768, 131072, 524288, 2097152, 8388608, 33554432, 268435456] as const;

/** Upper bounds of an error's ratio to what was observed: from a hundredth to twice. */
export const ratioBuckets = [0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2] as const;

/** A histogram as Prometheus counts it. */
export class Histogram {
  readonly bounds: readonly number[];
  /** Observations at or below each bound and above the one before it; those above all bounds are only in `count`. */
  readonly counts: number[];
  sum = 0;
  count = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = Array.from(bounds, () => 0);
  }

  observe(value: number): void {
    const { bounds, counts } = this;
    this.sum += value;
    this.count++;
    for (let index = 0; index < bounds.length; index++) {
      if (value <= (bounds[index] ?? Infinity)) {
        counts[index] = (counts[index] ?? 0) + 1;
        return;
      }
    }
  }
}

/** Milliseconds spent in the parts of successful invocations. */
type PartTimes = { -readonly [Part in Exclude<keyof PoolTimings, 'loadMs' | 'coreWaitMs'>]: number };

/** The runs that a number of requests shared. */
export interface BatchStatistics extends PartTimes {
  executions: number;
}

export class VersionStatistics implements BatchStatistics {
  readonly name: string;
  readonly version: string;
  successes = 0;
  readonly failures: Record<FailureReason, number> = { REJECTED: 0, CANCELED: 0, BACKEND: 0, OTHER: 0 };
  failureMs = 0;
  /** Rows of the answered batches. */
  inferences = 0;
  /** Runs of the model; each of n requests that shared a run adds 1/n. */
  executions = 0;
  requestMs = 0;
  queueMs = 0;
  preprocessMs = 0;
  inferMs = 0;
  postprocessMs = 0;
  /** Milliseconds since 1970; 0: never. */
  lastInferenceAtMs = 0;
  /** The same for the latest use: a call whose handler or model began to run, whatever came of it. */
  lastCallAtMs = 0;
  coldStarts = 0;
  /** Cold starts on GPUs by the mode of loading; the rest of {@link coldStarts} are loads into CPU instances. */
  readonly gpuColdStarts = new Map<string, number>();
  /** Starts on GPUs that waited for weights from the disk; they are cold starts too. */
  diskStarts = 0;
  /** Answers of GPUs that had all layers already. */
  gpuHits = 0;
  /** Invocations that ran elsewhere than they would have otherwise, by `from to reason`: 'gpu cpu slo'. */
  readonly overflows = new Map<string, number>();
  /** Late calls that ran so that the calls behind them find their function there. */
  brought = 0;
  /** Cold starts by their cause. */
  readonly coldCauses = new Map<string, number>();
  readonly outcomes: Record<Outcome, number> = { in_slo: 0, late: 0, shed: 0, failed: 0 };
  /** Calls that missed the SLO, by cause. */
  readonly misses = new Map<MissCause, number>();
  /** Their time beyond the SLO, and as much of it as nothing explains. */
  lateMs = 0;
  unexplainedMs = 0;
  /** By the rows of a run. */
  readonly batches = new Map<number, BatchStatistics>();
  readonly queueSeconds = new Histogram(secondsBuckets);
  readonly loadSeconds = new Histogram(secondsBuckets);
  readonly inferenceSeconds = new Histogram(secondsBuckets);
  readonly totalSeconds = new Histogram(secondsBuckets);
  /** |predicted / observed - 1| of mean latencies on the CPU pool, one for each window of observation. */
  readonly predictionError = new Histogram(ratioBuckets);
  /** |predicted / observed - 1| of each invocation on a GPU, from its arrival to its answer. */
  readonly gpuPredictionError = new Histogram(ratioBuckets);
  /** Duration of the latest load; undefined before the first. */
  lastLoadMs: number | undefined;
  /** What its instances have read from disk, and how long they waited for that. */
  readonly disk = { bytes: 0, ms: 0 };
  readonly evictions = new Map<string, number>();
  /** Why its latest instance died, and whose fault that was; undefined if none has died. */
  lastDeath: string | undefined;

  constructor(name: string, version: string) {
    this.name = name;
    this.version = version;
  }

  record({ outcome, miss, latencyMs, rows, hasRun, ran, failure }: InvocationRecord): void {
    if (failure !== undefined) this.failed(reasonOf(failure.code), latencyMs);
    // A call that was refused before is no use: it keeps no instance loaded either.
    if (hasRun) this.lastCallAtMs = Date.now();
    if (outcome !== undefined) this.outcomes[outcome]++;
    if (miss !== undefined) {
      count(this.misses, miss.cause);
      this.lateMs += miss.lateMs;
      this.unexplainedMs += miss.unexplainedMs;
    }
    if (ran === undefined) return;
    const { timings, coldStart, batchSize, batchRows = rows } = ran.result;
    this.#placed(ran.placement);
    this.successes++;
    this.inferences += rows;
    this.requestMs += latencyMs;
    this.lastInferenceAtMs = Date.now();
    this.#addParts(timings, batchSize, batchRows);
    this.queueSeconds.observe(timings.queueMs / 1000);
    this.inferenceSeconds.observe(timings.inferMs / 1000);
    this.totalSeconds.observe(latencyMs / 1000);
    if (!coldStart) return;
    this.coldStarts++;
    this.loadSeconds.observe(timings.loadMs / 1000);
  }

  /** Counts where an invocation ran, and why. */
  #placed(placement: Placement): void {
    const { overflow, coldCause, isBringing = false } = placement;
    if (isBringing) this.brought++;
    if (overflow !== undefined) count(this.overflows, `${overflow.from} ${overflow.to} ${overflow.reason}`);
    if (coldCause !== undefined) count(this.coldCauses, coldCause);
    if (placement.kind !== 'gpu') return;
    if (placement.start === 'disk') this.diskStarts++;
    if (placement.start !== 'warm') count(this.gpuColdStarts, placement.mode);
    else if (!isColdStart(placement)) this.gpuHits++;
  }

  failed(reason: FailureReason, totalMs: number): void {
    this.failures[reason]++;
    this.failureMs += totalMs;
  }

  /** Adds the parts of one successful invocation whose run had `rows` and was shared by `calls`. */
  #addParts(times: Readonly<PartTimes>, calls: number, rows: number): void {
    const share = 1 / calls;
    addRun(this, times, share, times.inferMs);
    // A client chooses the number of rows, but not how much memory this takes.
    if (this.batches.size === batchSizesMax && !this.batches.has(rows)) return;
    addRun(getOrMake(this.batches, rows, noRuns), times, share, times.inferMs * share);
  }
}

/** Sizes of runs that are counted apart; runs of any further size count only in the sums. */
const batchSizesMax = 4096;

const noRuns = (): BatchStatistics => ({ executions: 0, queueMs: 0, preprocessMs: 0, inferMs: 0, postprocessMs: 0 });

function addRun(sum: BatchStatistics, times: Readonly<PartTimes>, share: number, inferMs: number): void {
  sum.executions += share;
  sum.queueMs += times.queueMs;
  sum.preprocessMs += times.preprocessMs;
  sum.inferMs += inferMs;
  sum.postprocessMs += times.postprocessMs;
}

/** A request that has got its reply. */
export interface Replied {
  /** The version that it asked for, once that was known to exist. */
  readonly called: FunctionVersion | undefined;
  readonly status: number;
  readonly failure: HostError | undefined;
  readonly durationMs: number;
  readonly requestBytes: number;
  readonly replyBytes: number;
}

export class Statistics implements InvocationRecorder {
  /** The same, over time. */
  readonly history: History;
  readonly #versions = new Map<string, VersionStatistics>();
  readonly #calls = new Map<string, Map<number, Histogram>>();
  /** Failures reported to clients, by code of the catalogue. */
  readonly errors = new Map<ErrorCode, number>();
  /** Requests that currently count against `requestsInFlightMax`. */
  requestsInFlight = 0;
  readonly #inFlight = new Map<string, number>();
  readonly #whenNone: (() => void)[] = [];
  readonly loadMilliseconds = new Histogram(millisecondsBuckets);
  readonly loadedBytes = new Histogram(bytesBuckets);
  readonly unloadMilliseconds = new Histogram(millisecondsBuckets);
  /** Bodies of calls and replies, by the gRPC code for the status. */
  readonly requestBytes = new Map<string, Histogram>();
  readonly replyBytes = new Map<string, Histogram>();
  readonly #started = new Map<string, number>();
  readonly ageAtEvictionMilliseconds = new Histogram(ageBuckets);

  constructor(history = new History()) {
    this.history = history;
  }

  /** Requests of a function that are in progress. */
  inFlightOf(functionName: string): number {
    return this.#inFlight.get(functionName) ?? 0;
  }

  begin(functionName: string): void {
    this.requestsInFlight++;
    this.#inFlight.set(functionName, this.inFlightOf(functionName) + 1);
  }

  end(functionName: string): void {
    this.requestsInFlight--;
    if (this.requestsInFlight === 0 && this.#whenNone.length > 0) for (const wake of this.#whenNone.splice(0)) wake();
    const left = this.inFlightOf(functionName) - 1;
    if (left > 0) this.#inFlight.set(functionName, left);
    else this.#inFlight.delete(functionName);
  }

  /** Resolves when no request counts against the limit. */
  async noneInFlight(): Promise<void> {
    if (this.requestsInFlight > 0) await new Promise<void>((resolve) => this.#whenNone.push(resolve));
  }

  /** The statistics of one version, created when first asked for. */
  of(version: { readonly key: string; readonly name: string; readonly version: string }): VersionStatistics {
    return getOrMake(this.#versions, version.key, () => new VersionStatistics(version.name, version.version));
  }

  /** The statistics of one version, if it has any yet. */
  find(key: string): VersionStatistics | undefined {
    return this.#versions.get(key);
  }

  versions(): IterableIterator<VersionStatistics> {
    return this.#versions.values();
  }

  /** Forgets a removed version, so that its series end; with the last version also its function's calls. */
  forget(version: { readonly key: string; readonly name: string }, last: boolean): void {
    this.#versions.delete(version.key);
    if (!last) return;
    this.#calls.delete(version.name);
    this.#started.delete(version.name);
  }

  /** Counts an invocation that has ended. */
  record(record: InvocationRecord): void {
    const { key, functionName: name, version } = record;
    this.of({ key, name, version }).record(record);
    this.history.record(record);
  }

  /** Counts a call of a known function that has begun. */
  callBegun(name: string): void {
    count(this.#started, name);
  }

  /** Counts a request that has ended; `isThere`: the version that it called has not been removed meanwhile. */
  replied({ called, status, failure, durationMs, requestBytes, replyBytes }: Replied, isThere: boolean): void {
    if (failure !== undefined) this.failed(failure);
    if (called === undefined) return;
    const { name } = called;
    const byStatus = getOrMake(this.#calls, name, () => new Map<number, Histogram>());
    getOrMake(byStatus, status, () => new Histogram(secondsBuckets)).observe(durationMs / 1000);
    const code = codeOfStatus(status);
    getOrMake(this.requestBytes, code, payloadHistogram).observe(requestBytes);
    getOrMake(this.replyBytes, code, payloadHistogram).observe(replyBytes);
    if (failure === undefined || accounted.has(failure)) return;
    // It never became an invocation: bad input, over a limit, not ready.
    if (status >= 400 && status < 500) this.history.refused(name);
    if (!isThere) return;
    // A function that cannot serve fails those who call it, though nothing ran.
    if (failure.code === 'not-ready') this.#recordUnready(called, failure, durationMs);
    else this.of(called).failed(reasonOf(failure.code), durationMs);
  }

  #recordUnready({ key, name, version, settings }: FunctionVersion, failure: HostError, latencyMs: number): void {
    this.record({
      key,
      functionName: name,
      version,
      arrivalMs: performance.now() - latencyMs,
      sloMs: settings.sloMs,
      rows: 1,
      hasRun: false,
      latencyMs,
      outcome: 'failed',
      miss: { cause: 'failed', lateMs: Math.max(0, latencyMs - settings.sloMs), unexplainedMs: 0 },
      failure,
    });
  }

  /** Calls of each function that have begun, refused ones included. */
  started(): ReadonlyMap<string, number> {
    return this.#started;
  }

  /** Seconds of each function's calls, by their final status. */
  calls(): ReadonlyMap<string, ReadonlyMap<number, Histogram>> {
    return this.#calls;
  }

  /** Counts a failure that a client was told. */
  failed(failure: Pick<HostError, 'code' | 'status' | 'message'>): void {
    this.history.errors.add(failure, Date.now());
    count(this.errors, failure.code);
  }

  /** The model was loaded into one more instance. */
  loaded(version: VersionStatistics, loadMs: number, modelBytes: number): void {
    version.lastLoadMs = loadMs;
    this.loadMilliseconds.observe(loadMs);
    this.loadedBytes.observe(modelBytes);
  }

  /** An instance of the function ended after `ageMs` of readiness. */
  evicted(version: VersionStatistics, cause: string, ageMs: number): void {
    count(version.evictions, cause);
    this.ageAtEvictionMilliseconds.observe(ageMs);
  }
}

const payloadHistogram = (): Histogram => new Histogram(payloadBuckets);

/** The gRPC code under which ModelMesh would count a reply. */
export function codeOfStatus(status: number): string {
  switch (status) {
    case 400:
    case 413:
    case 415:
    case 422:
      return 'INVALID_ARGUMENT';
    case 401:
      return 'UNAUTHENTICATED';
    case 403:
      return 'PERMISSION_DENIED';
    case 404:
      return 'NOT_FOUND';
    case 408:
    case 504:
      return 'DEADLINE_EXCEEDED';
    case 429:
      return 'RESOURCE_EXHAUSTED';
    case 499:
      return 'CANCELLED';
    case 503:
      return 'UNAVAILABLE';
    default:
      return status < 400 ? 'OK' : status < 500 ? 'FAILED_PRECONDITION' : 'INTERNAL';
  }
}
