/** Which batch size a load calls for. */

/** Weight of the newest depth in the moving average: the paper's alpha. */
const smoothing = 0.2;
/** The most frequent of this many estimates counts: the paper's n. With a sample every half second, 7.5 seconds. */
const window = 15;
/** Largest batch size. */
const batchMax = 64;
/**
 * A moving average approaches a steady depth of 64 from below and never reaches it: 3% short of a power of two is
 * enough.
 */
const nearlyFull = 1.03;

/**
 * Packrat's batch size estimator (Packrat, 3.8), smoothed on two levels so that noise causes no change. The depth of
 * the queue is an exponentially weighted moving average, Q_x = alpha Q + (1 - alpha) Q_(x-1); its next lower power of
 * two is an estimate. The result is the mode of the last n estimates. Its user decides when to apply it.
 *
 * Among equally frequent estimates the latest counts: it is the current load.
 */
export class BatchEstimator {
  readonly #estimates: number[] = [];
  #average: number | undefined;

  /** The smoothed depth; 0 before the first. */
  get depth(): number {
    return this.#average ?? 0;
  }

  /** The batch size that the last estimates call for: their mode; 1 before the first. */
  get smoothedBatch(): number {
    return mode(this.#estimates) ?? 1;
  }

  /** Takes a depth: rows that wait or run. */
  observe(depth: number): void {
    this.#average = this.#average === undefined ? depth : smoothing * depth + (1 - smoothing) * this.#average;
    this.#estimates.push(lowerPowerOfTwo(Math.min(this.#average * nearlyFull, batchMax)));
    if (this.#estimates.length > window) this.#estimates.shift();
  }
}

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
