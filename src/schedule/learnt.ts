/** What the scheduler learns of functions: what a run takes, how far predictions are off, and how often each is invoked. */
import { grownFloats } from './columns.ts';

/** How much of what is known already a new observation leaves. */
const kept = 0.8;

/**
 * A figure of each function that may never have been measured: what was observed, else what its offer says, else the
 * mean of the functions that were observed, else nothing at all, so that the first invocation is sent and teaches it.
 */
export class Learnt {
  readonly #values = new Map<number, number>();
  #mean = 0;

  of(functionIndex: number, offered: number | undefined): number {
    return offered ?? this.#values.get(functionIndex) ?? this.#mean;
  }

  observe(functionIndex: number, value: number): void {
    const before = this.#values.get(functionIndex);
    this.#values.set(functionIndex, before === undefined ? value : before * kept + value * (1 - kept));
    this.#mean = this.#mean === 0 ? value : this.#mean * kept + value * (1 - kept);
  }

  forget(functionIndex: number): void {
    this.#values.delete(functionIndex);
  }
}

/** Weight of a new observation in the scale by which steps go. */
const newest = 0.1;

/**
 * By how much a prediction is to be put off so that a wanted share of what is predicted comes in time: the quantile of
 * how far it was off, by function, followed step by step (Robbins and Monro 1951). Who is late raises it by about the
 * mean error, who is in time lowers it by so much less that both balance at the share.
 */
export class Margin {
  readonly #lateShare: number;
  readonly #known = new Map<number, { ms: number; scaleMs: number }>();
  /** Of a function that was never observed. */
  #latestMs = 0;

  /** @param share that is to come in time */
  constructor(share: number) {
    this.#lateShare = 1 - share;
  }

  of(functionIndex: number): number {
    return this.#known.get(functionIndex)?.ms ?? this.#latestMs;
  }

  /** @param offMs how much later than predicted it came */
  observe(functionIndex: number, offMs: number): void {
    let known = this.#known.get(functionIndex);
    if (known === undefined) {
      known = { ms: this.#latestMs, scaleMs: Math.abs(offMs) };
      this.#known.set(functionIndex, known);
    }
    known.scaleMs += newest * (Math.abs(offMs) - known.scaleMs);
    known.ms = Math.max(0, known.ms + known.scaleMs * ((offMs > known.ms ? 1 : 0) - this.#lateShare));
    this.#latestMs = known.ms;
  }

  forget(functionIndex: number): void {
    this.#known.delete(functionIndex);
  }
}

/** A use counts half after so many arrivals for each function that there is. */
const halfLifePerFunction = 8;
/** All counts are scaled down before they grow beyond what a number holds. */
const useMax = 2 ** 400;

/**
 * How often each function is invoked, with older uses counting less. All counts fade alike, so that instead of fading
 * them each new use counts more; what matters is how they compare.
 */
export class Popularity {
  #counts = new Float64Array(64);
  /** What a use counts now. */
  #use = 1;
  #growth = 1;
  #functions = 0;
  /** Of all uses, what they count; and the squares of that. */
  #sum = 0;
  #useSquares = 0;
  /** Over the functions, the squares of their counts. */
  #countSquares = 0;
  readonly #onScale: ((factor: number) => void)[] = [];

  grow(functionCount: number): void {
    this.#counts = grownFloats(this.#counts, functionCount);
    this.#functions = functionCount;
    this.#growth = 2 ** (1 / (halfLifePerFunction * functionCount));
  }

  use(functionIndex: number): void {
    const use = this.#use * this.#growth;
    const count = this.#counts[functionIndex]!;
    this.#use = use;
    this.#counts[functionIndex] = count + use;
    this.#sum += use;
    this.#useSquares += use * use;
    this.#countSquares += use * (2 * count + use);
    if (this.#use > useMax) this.#scale(1 / useMax);
  }

  count(functionIndex: number): number {
    return this.#counts[functionIndex]!;
  }

  /**
   * What of a count says more than chance (empirical Bayes, James and Stein 1961): the share of the functions' variance
   * that is more than as many uses would have if all functions were used alike. The rest of an expected count is the
   * mean, which only grows: of functions that are used alike the latest one counts most.
   */
  expected(functionIndex: number): number {
    const mean = this.#sum / this.#functions;
    const variance = this.#countSquares - this.#sum * mean;
    const share = variance <= this.#useSquares ? 0 : 1 - this.#useSquares / variance;
    return mean + share * (this.#counts[functionIndex]! - mean);
  }

  /** What is expected, as it would be if so many more uses came with as many arrivals as there are functions. */
  expectedWith(functionIndex: number, uses: number): number {
    return this.expected(functionIndex) + (uses * this.#use * halfLifePerFunction) / Math.LN2;
  }

  /** How often a function is used in as many arrivals as there are functions: 1 where all are used alike. */
  share(functionIndex: number): number {
    return ((this.#counts[functionIndex]! / this.#use) * Math.LN2) / halfLifePerFunction;
  }

  /** Whoever keeps what comes of a count has to scale it as well. */
  onScale(listener: (factor: number) => void): void {
    this.#onScale.push(listener);
  }

  #scale(factor: number): void {
    this.#use *= factor;
    this.#sum *= factor;
    this.#useSquares *= factor * factor;
    this.#countSquares *= factor * factor;
    for (let index = 0; index < this.#counts.length; index++) this.#counts[index]! *= factor;
    for (const listener of this.#onScale) listener(factor);
  }
}
