/** What a pool does at a rate, and how much longer its requests take than profiled, by how many run at once. */

/** What a configuration does at a rate; milliseconds, means over requests. */
export type PoolPrediction =
  | { readonly state: 'stable'; readonly latencyMs: number; readonly serviceMs: number }
  /** Requests come faster than they can be answered: the queue grows without limit. */
  | { readonly state: 'overloaded' };

/** What a mean of observed runs is made of. */
export interface ObservedRuns {
  /** The logarithm of observed over predicted milliseconds. */
  readonly beyond: number;
  /** The same against the profile alone. */
  readonly beyondProfile: number;
  /** Share of their work that was done while 1, 2, ... ran at once. */
  readonly shares: readonly number[];
  /** What instances that were idle before added to them, over the rest. */
  readonly idleShare: number;
  readonly answers: number;
}

/** Observation corrects within this factor either way; a pool that is further off needs a new profile. */
const factorMax = 4;
/**
 * A part of the correction: how far off it may be before anything was observed (a standard deviation of the logarithm),
 * and the seconds after which little of what was observed still holds.
 */
const parts = {
  /** How the machine's speed drifts: other work takes its cores and caches, whatever runs here. */
  machine: { spread: 0.2, seconds: 300 },
  /** What a number of requests at once adds: the handler, and how they slow each other down, if not as profiled. */
  number: { spread: 0.25, seconds: 10_000 },
  idle: { spread: 0.3, seconds: 2000 },
} as const;
/** The logarithm of the ratio of two numbers at once by which they are alike in part only. */
const alikeRatio = 4;
/** More at once count as so many: they are alike, and a function's table stays small. */
const numbersMax = 16;
/** Service times vary, and so do means of them: variance of one, and of a mean of any number. */
const oneVariance = 0.1;
const meanVariance = 0.01 ** 2;

/**
 * Observed over profiled service time: how much slower the machine is than when it was measured, plus the handler. Kept
 * by the number of requests that run at once, since what a light load shows of a request alone says little about one
 * beside others; but a machine that has slowed down is slower for any number, and near numbers are alike. So this is a
 * Kalman filter over the logarithms of a factor of the machine, one of each number at once, and one of what idle
 * instances add.
 */
export class Slowdowns {
  /** Factors of 1, 2, ... at once; then of the machine; then of what idle instances add. */
  readonly #mean: Float64Array;
  /** Row by row. */
  readonly #covariance: Float64Array;
  readonly #most: number;

  /** @param most the largest number at once */
  constructor(most: number) {
    this.#most = Math.min(most, numbersMax);
    const size = this.#most + 2;
    this.#mean = new Float64Array(size);
    this.#covariance = Float64Array.from({ length: size ** 2 }, (_, at) => this.#prior(at));
  }

  /** The slowdown of a request that runs as one of so many. */
  at(running: number): number {
    return factorOf(this.#mean[this.#most]! + this.#mean[Math.min(running, this.#most) - 1]!);
  }

  /** The slowdown that an instance adds which was idle. */
  get idle(): number {
    return factorOf(this.#mean[this.#most + 1]!);
  }

  /** Time goes by: what was observed is worth less, and the profile more. */
  pass(seconds: number): void {
    const size = this.#mean.length;
    const left = Array.from(this.#mean, (_, at) => Math.exp(-seconds / this.#partOf(at).seconds));
    for (let at = 0; at < size; at++) this.#mean[at]! *= left[at]!;
    for (let at = 0; at < size * size; at++) {
      const both = left[Math.floor(at / size)]! * left[at % size]!;
      this.#covariance[at] = both * this.#covariance[at]! + (1 - both) * this.#prior(at);
    }
  }

  observe({ beyond, beyondProfile, shares, idleShare, answers }: ObservedRuns): void {
    const size = this.#mean.length;
    const weights = new Float64Array(size);
    for (const [index, share] of shares.entries()) weights[Math.min(index, this.#most - 1)]! += share;
    weights[this.#most] = 1;
    weights[this.#most + 1] = idleShare;
    const row = (at: number): number => {
      let sum = 0;
      for (let other = 0; other < size; other++) sum += this.#covariance[at * size + other]! * weights[other]!;
      return sum;
    };
    const together = Float64Array.from(weights, (_, at) => row(at));
    const variance = weights.reduce((sum, weight, at) => sum + weight * together[at]!, 0);
    const gain = 1 / (variance + oneVariance / answers + meanVariance);
    const limit = Math.log(factorMax);
    const innovation = beyond - beyondProfile + Math.min(limit, Math.max(-limit, beyondProfile));
    for (let at = 0; at < size; at++) this.#mean[at]! += gain * together[at]! * innovation;
    for (let at = 0; at < size * size; at++)
      this.#covariance[at]! -= gain * together[Math.floor(at / size)]! * together[at % size]!;
  }

  /** Covariance before anything was observed. */
  #prior(at: number): number {
    const [one, other] = [Math.floor(at / (this.#most + 2)), at % (this.#most + 2)];
    if (one === other) return this.#partOf(one).spread ** 2;
    if (one >= this.#most || other >= this.#most) return 0;
    // Eight at once are more like nine than one is like two.
    return parts.number.spread ** 2 * Math.exp(-Math.abs(Math.log((one + 1) / (other + 1))) / alikeRatio);
  }

  #partOf(at: number): { readonly spread: number; readonly seconds: number } {
    return at < this.#most ? parts.number : at === this.#most ? parts.machine : parts.idle;
  }
}

function factorOf(logarithm: number): number {
  return Math.min(factorMax, Math.max(1 / factorMax, Math.exp(logarithm)));
}

/**
 * How many times as long as alone a run takes as one of so many.
 *
 * @param serviceTimeMs how long a run takes as one of 1, 2, ...; with more than that, the last holds
 * @param factorOf what the time of so many at once is multiplied by; default: 1
 */
export function slowdownBeside(
  serviceTimeMs: readonly number[],
  running: number,
  factorOf: (running: number) => number = () => 1,
): number {
  const msOf = (count: number): number => serviceTimeMs[count - 1]! * factorOf(count);
  return Math.max(1, msOf(Math.min(running, serviceTimeMs.length)) / msOf(1));
}
