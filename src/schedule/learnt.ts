/**
 * What the scheduler learns about functions: how long runs take, how far predictions are off, and how often each is
 * invoked.
 */
import type { Given, FunctionId } from './ids.ts';
import { smoothed } from '../tools/index.ts';
import { grown } from './columns.ts';
import { tuning } from './tuning.ts';

const { halfLifePerFunction, newest } = tuning.learnt;

/**
 * A figure per function that may never have been measured: the offer's value, else the observed one, else the mean over
 * observed functions, else 0, so that the first invocation teaches it. A figure that grows with a function's size is
 * estimated by the mean or by the mean per unit of size, whichever is less: one invocation corrects an estimate that is
 * too low, but a place whose estimate is too high is never tried.
 */
export class Learnt {
  readonly #values = new Map<number, number>();
  #mean: number | undefined;
  /** For each unit of size. */
  #meanShare: number | undefined;

  of(functionIndex: Given<FunctionId>, offered: number | undefined, size = Infinity): number {
    return (
      offered ?? this.#values.get(functionIndex) ?? Math.min(this.#mean ?? 0, (this.#meanShare ?? Infinity) * size)
    );
  }

  observe(functionIndex: Given<FunctionId>, value: number, size = 0): void {
    this.#values.set(functionIndex, smoothed(this.#values.get(functionIndex), value));
    this.#mean = smoothed(this.#mean, value);
    if (size > 0) this.#meanShare = smoothed(this.#meanShare, value / size);
  }

  forget(functionIndex: Given<FunctionId>): void {
    this.#values.delete(functionIndex);
  }
}

/**
 * A margin to add to a prediction so that a wanted share of the predictions holds: the quantile of the error, per
 * function, followed step by step (Robbins and Monro 1951). A late result raises the margin by about the mean error;
 * one in time lowers it by less, so that both balance at the share.
 */
export class Margin {
  readonly #lateShare: number;
  readonly #known = new Map<number, { ms: number; scaleMs: number }>();
  /** For a function that was never observed. */
  #latestMs = 0;

  /** @param share that is to be in time */
  constructor(share: number) {
    this.#lateShare = 1 - share;
  }

  of(functionIndex: Given<FunctionId>): number {
    return this.#known.get(functionIndex)?.ms ?? this.#latestMs;
  }

  /** @param offMs how much later than predicted it came */
  observe(functionIndex: Given<FunctionId>, offMs: number): void {
    let known = this.#known.get(functionIndex);
    if (known === undefined) {
      known = { ms: this.#latestMs, scaleMs: Math.abs(offMs) };
      this.#known.set(functionIndex, known);
    }
    known.scaleMs += newest * (Math.abs(offMs) - known.scaleMs);
    known.ms = Math.max(0, known.ms + known.scaleMs * ((offMs > known.ms ? 1 : 0) - this.#lateShare));
    this.#latestMs = known.ms;
  }

  forget(functionIndex: Given<FunctionId>): void {
    this.#known.delete(functionIndex);
  }
}

/** All counts are scaled down before they overflow. */
const useMax = 2 ** 400;

/**
 * How often each function is invoked, with older uses counting less. Counts only matter relative to each other, so
 * instead of fading all of them each new use counts more.
 */
export class Popularity {
  #counts = new Float64Array(64);
  /** Weight of a use now. */
  #use = 1;
  #growth = 1;
  #functions = 0;
  /** Over all uses: their weights, and the squares of these. */
  #sum = 0;
  #useSquares = 0;
  /** Over the functions, the squares of their counts. */
  #countSquares = 0;
  readonly #onScale: ((factor: number) => void)[] = [];

  grow(functionCount: number): void {
    this.#counts = grown(this.#counts, functionCount);
    this.#functions = functionCount;
    this.#growth = 2 ** (1 / (halfLifePerFunction * functionCount));
  }

  use(functionIndex: Given<FunctionId>): void {
    const use = this.#use * this.#growth;
    const count = this.#counts[functionIndex]!;
    this.#use = use;
    this.#counts[functionIndex] = count + use;
    this.#sum += use;
    this.#useSquares += use * use;
    this.#countSquares += use * (2 * count + use);
    if (this.#use > useMax) this.#scale(1 / useMax);
  }

  /** As if it had been used for long with this share of all uses. */
  hadShare(functionIndex: Given<FunctionId>, share: number): void {
    const count = (this.#use * share * halfLifePerFunction * this.#functions) / Math.LN2;
    const before = this.#counts[functionIndex]!;
    this.#counts[functionIndex] = before + count;
    this.#sum += count;
    this.#useSquares += (count * this.#use) / 2;
    this.#countSquares += count * (2 * before + count);
  }

  count(functionIndex: Given<FunctionId>): number {
    return this.#counts[functionIndex]!;
  }

  /**
   * The part of a count that is more than chance (empirical Bayes, James and Stein 1961): the share of the functions'
   * variance beyond that of equally used functions. The rest of an expected count is the mean, which only grows: among
   * functions that are used alike, the latest used counts most.
   */
  expected(functionIndex: Given<FunctionId>): number {
    const mean = this.#sum / this.#functions;
    const variance = this.#countSquares - this.#sum * mean;
    const share = variance <= this.#useSquares ? 0 : 1 - this.#useSquares / variance;
    return mean + share * (this.#counts[functionIndex]! - mean);
  }

  /** The count if this many more uses came within as many arrivals as there are functions. */
  countWith(functionIndex: FunctionId, uses: number): number {
    return this.count(functionIndex) + (uses * this.#use * halfLifePerFunction) / Math.LN2;
  }

  /** Uses of a function in as many arrivals as there are functions: 1 where all are used alike. */
  share(functionIndex: Given<FunctionId>): number {
    return ((this.#counts[functionIndex]! / this.#use) * Math.LN2) / halfLifePerFunction;
  }

  /** For values derived from counts: they must be scaled along with the counts. */
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
