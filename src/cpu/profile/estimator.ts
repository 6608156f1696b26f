/**
 * Which batch size a load calls for, and when a change is worth a reconfiguration. No clock: times come with the
 * events.
 */

export interface EstimatorOptions {
  /** Weight of the newest depth in the moving average, above 0 and at most 1: the paper's alpha. */
  readonly smoothing: number;
  /** The most frequent of this many estimates counts: the paper's n. */
  readonly window: number;
  /** Least time between two changes, in milliseconds: the paper's reconfiguration timeout. */
  readonly intervalMs: number;
  /** Largest batch size. */
  readonly batchMax: number;
}

/** A change of the batch size that the load calls for. */
export interface BatchChange {
  readonly from: number;
  readonly to: number;
  readonly atMs: number;
}

/**
 * A fifth of a new depth, the last 15, ten seconds: with a sample every half second a step of load shows within ten.
 */
export const estimatorDefaults: EstimatorOptions = { smoothing: 0.2, window: 15, intervalMs: 10_000, batchMax: 64 };

/**
 * Packrat's batch size estimator (Packrat, 3.8), smoothed on two levels so that noise causes no change. The depth of
 * the queue is an exponentially weighted moving average, Q_x = alpha Q + (1 - alpha) Q_(x-1); its next lower power of
 * two is an estimate. The result is the mode of the last n estimates. Once in each interval the mode is compared with
 * the current batch size.
 *
 * Among equally frequent estimates the latest counts: it is the current load.
 */
export class BatchEstimator {
  readonly #options: EstimatorOptions;
  readonly #estimates: number[] = [];
  #average: number | undefined;
  #batch: number;
  #changedAtMs: number;

  /** @throws RangeError where an option is out of range */
  constructor(options: EstimatorOptions, batch: number, nowMs: number) {
    const { smoothing, window, intervalMs, batchMax } = options;
    if (!(smoothing > 0 && smoothing <= 1)) throw new RangeError(`smoothing is ${smoothing}, but must be in (0, 1]`);
    if (!Number.isInteger(window) || window < 1) throw new RangeError(`window is ${window}, but must be 1 or more`);
    if (!(intervalMs >= 0)) throw new RangeError(`intervalMs is ${intervalMs}, but must be 0 or more`);
    if (!(batchMax >= 1)) throw new RangeError(`batchMax is ${batchMax}, but must be 1 or more`);
    this.#options = options;
    this.#batch = batch;
    this.#changedAtMs = nowMs;
  }

  /** The current batch size. */
  get batch(): number {
    return this.#batch;
  }

  /** The smoothed depth; 0 before the first. */
  get depth(): number {
    return this.#average ?? 0;
  }

  /** The batch size that the last estimates call for: their mode, which may not be applied yet. */
  get smoothedBatch(): number {
    return mode(this.#estimates) ?? this.#batch;
  }

  /**
   * Takes a depth: rows that wait or run. Returns the change to make, at most one per interval; from then on it counts
   * as applied.
   */
  observe(depth: number, nowMs: number): BatchChange | undefined {
    const { smoothing, window, intervalMs, batchMax } = this.#options;
    this.#average = this.#average === undefined ? depth : smoothing * depth + (1 - smoothing) * this.#average;
    this.#estimates.push(lowerPowerOfTwo(Math.min(this.#average * nearlyFull, batchMax)));
    if (this.#estimates.length > window) this.#estimates.shift();
    // The first change too needs a full window: a burst at the start is no steady load.
    if (this.#estimates.length < window || nowMs - this.#changedAtMs < intervalMs) return undefined;
    const to = this.smoothedBatch;
    this.#changedAtMs = nowMs;
    if (to === this.#batch) return undefined;
    const from = this.#batch;
    this.#batch = to;
    return { from, to, atMs: nowMs };
  }
}

/**
 * A moving average approaches a steady depth of 64 from below and never reaches it: 3% short of a power of two is
 * enough.
 */
const nearlyFull = 1.03;

/** The largest power of two that is not larger than the value; 1 for values below 2. */
export function lowerPowerOfTwo(value: number): number {
  return value >= 2 ? 2 ** Math.floor(Math.log2(value)) : 1;
}

function mode(values: readonly number[]): number | undefined {
  const counts = new Map<number, number>();
  let best: number | undefined;
  for (const value of values) {
    const count = (counts.get(value) ?? 0) + 1;
    counts.set(value, count);
    // At least as often as the best so far, and seen later.
    if (best === undefined || count >= (counts.get(best) ?? 0)) best = value;
  }
  return best;
}
