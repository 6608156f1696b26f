/** Prediction for a running pool: the service of an arrival now, and how accurate the predictions have been. */
import type { PoolGroup } from '../../types.ts';
import type { BatchedCandidate, Candidate, UnbatchedCandidate } from './candidates.ts';
import { idleExtraMs, type IdleCost } from './idle-cost.ts';
import type { PoolTable } from './pool-table.ts';
import type { PoolPrediction } from './service-latency.ts';
import { idleGapMs } from './service-latency.ts';

/** The state of a pool at an instant. */
export interface PoolSnapshot {
  /** Active groups; undefined: no configuration, instances on demand. */
  readonly groups: readonly PoolGroup[] | undefined;
  /** Requests that wait. */
  readonly waiting: number;
  /** Requests that run. */
  readonly running: number;
  readonly arrivalsPerSecond: number;
}

/** What a request that arrives now would take once an instance has it. */
export interface ArrivalPrediction {
  readonly serviceMs: number;
  /** Cores that its run takes. */
  readonly cores: number;
}

/**
 * Weight of the newest window in the correction. It is large: service times vary little, so a window's mean is
 * accurate.
 */
const correctionWeight = 0.5;
/** Observation corrects within this factor either way; a pool that is further off needs a new profile. */
const correctionMax = 4;
/** A window with fewer answers says little about a mean. */
const windowAnswersMin = 20;

/** One comparison of prediction and observation. */
export interface PredictionCheck {
  readonly predictedMs: number;
  readonly observedMs: number;
  /** |predicted / observed - 1|. */
  readonly errorRatio: number;
}

export class LivePrediction {
  readonly table: PoolTable;
  #correction = 1;
  #answers = 0;
  #latencySumMs = 0;
  #serviceSumMs = 0;
  #sinceMs: number;

  constructor(table: PoolTable, nowMs: number) {
    this.table = table;
    this.#sinceMs = nowMs;
  }

  /**
   * Observed over profiled service time, smoothed: how much slower the machine is than when it was measured, plus the
   * handler. Latency is not compared: near a pool's capacity it says more about the load than about the pool.
   */
  get correction(): number {
    return this.#correction;
  }

  /**
   * What a candidate does at a rate, corrected. A queue in which everything takes f times as long is the profiled one
   * at f times the rate, seen on a clock that is f times as slow. So waiting grows by far more than f if the pool is
   * busy.
   */
  predict(candidate: Candidate, ratePerSecond: number): PoolPrediction {
    const { correction } = this;
    return scaled(this.table.predict(candidate, ratePerSecond * correction), correction);
  }

  /**
   * The service of a request that arrives now. The current queue counts: a request that finds an instance free runs
   * beside as few others as run now, whatever the mean says.
   *
   * Undefined if the profile does not cover the configuration, and for an on-demand pool without any candidate.
   */
  arrival(pool: PoolSnapshot): ArrivalPrediction | undefined {
    const candidate = pool.groups === undefined ? this.#onDemand() : this.table.find(pool.groups);
    if (candidate === undefined) return undefined;
    const serviceMs =
      candidate.kind === 'unbatched'
        ? unbatchedServiceMs(candidate, this.table.profile.idle, pool)
        : this.#batchedServiceMs(candidate, pool.arrivalsPerSecond);
    const [{ threads } = { threads: 1 }] = candidate.groups;
    return { serviceMs: serviceMs * this.#correction, cores: threads };
  }

  /**
   * An answer came: milliseconds from arrival, and from when an instance had it. Calls that waited for a start must not
   * be reported: a steady state has none.
   */
  answered(latencyMs: number, serviceMs: number): void {
    this.#answers++;
    this.#latencySumMs += latencyMs;
    this.#serviceSumMs += serviceMs;
  }

  /**
   * Ends a window with one configuration: compares the predicted mean for the window's rate with the observed mean, and
   * corrects. Undefined, without a correction, if the window had too few answers, or the pool was predicted to be
   * overloaded, where there is no mean.
   */
  check(candidate: Candidate | undefined, nowMs: number): PredictionCheck | undefined {
    const answers = this.#answers;
    const observedMs = this.#latencySumMs / answers;
    const serviceMs = this.#serviceSumMs / answers;
    const seconds = (nowMs - this.#sinceMs) / 1000;
    this.restart(nowMs);
    if (candidate === undefined || answers < windowAnswersMin || seconds <= 0) return undefined;
    const predicted = this.predict(candidate, answers / seconds);
    const predictedServiceMs =
      predicted.state === 'stable' ? predicted.serviceMs : fullServiceMs(candidate) * this.#correction;
    const seen = (this.#correction * serviceMs) / predictedServiceMs;
    const ratio = Math.min(correctionMax, Math.max(1 / correctionMax, seen));
    this.#correction += correctionWeight * (ratio - this.#correction);
    if (predicted.state === 'overloaded') return undefined;
    const { latencyMs: predictedMs } = predicted;
    return { predictedMs, observedMs, errorRatio: Math.abs(predictedMs / observedMs - 1) };
  }

  /** Restarts the window: the configuration changed, and answers of two configurations say nothing about either. */
  restart(nowMs: number): void {
    this.#answers = 0;
    this.#latencySumMs = 0;
    this.#serviceSumMs = 0;
    this.#sinceMs = nowMs;
  }

  /** The candidate closest to a pool on demand: instances of the fewest threads, one for each core. */
  #onDemand(): Candidate | undefined {
    const { candidates } = this.table;
    const single = candidates.find(({ kind }) => kind === 'unbatched');
    const alike = candidates.filter(
      ({ kind, groups }) => kind === 'unbatched' && groups[0]?.threads === single?.groups[0]?.threads,
    );
    return alike.toSorted((a, b) => b.cores - a.cores)[0] ?? candidates[0];
  }

  #batchedServiceMs(candidate: BatchedCandidate, arrivalsPerSecond: number): number {
    const mean = this.table.predict(candidate, arrivalsPerSecond);
    return mean.state === 'stable' ? mean.serviceMs : candidate.latencyMs;
  }
}

/** On an instance that was idle, beside those that run; behind a queue, with all of them at work. */
function unbatchedServiceMs(
  { serviceTimeMs, groups }: UnbatchedCandidate,
  costs: readonly IdleCost[],
  { waiting, running, arrivalsPerSecond }: PoolSnapshot,
): number {
  const concurrency = serviceTimeMs.length;
  const fullMs = serviceTimeMs.at(-1) ?? 0;
  if (running >= concurrency || waiting > 0) return fullMs;
  const utilisation = Math.min(1, (arrivalsPerSecond * fullMs) / 1000 / concurrency);
  const gapMs = idleGapMs(concurrency, utilisation, arrivalsPerSecond);
  return (serviceTimeMs[running] ?? fullMs) + idleExtraMs(costs, groups[0]?.threads ?? 1, gapMs);
}

/** Milliseconds of a request while every instance is at work. */
function fullServiceMs(candidate: Candidate): number {
  return candidate.kind === 'batched' ? candidate.latencyMs : (candidate.serviceTimeMs.at(-1) ?? 0);
}

function scaled(prediction: PoolPrediction, factor: number): PoolPrediction {
  if (prediction.state === 'overloaded') return prediction;
  const { latencyMs, serviceMs } = prediction;
  return { state: 'stable', latencyMs: latencyMs * factor, serviceMs: serviceMs * factor };
}
