import { grownFloats } from './columns.ts';

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
