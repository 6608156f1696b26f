import { grownFloats } from './columns.ts';

/** A use counts half after so many arrivals for each function that there is. */
const halfLifePerFunction = 8;
/** All counts are scaled down before they grow beyond what a number holds. */
const useMax = 2 ** 500;

/**
 * How often each function is invoked, with older uses counting less. All counts fade alike, so that instead of fading
 * them each new use counts more; what matters is how they compare.
 */
export class Popularity {
  #counts = new Float64Array(64);
  /** What a use counts now. */
  #use = 1;
  #growth = 1;
  readonly #onScale: ((factor: number) => void)[] = [];

  grow(functionCount: number): void {
    this.#counts = grownFloats(this.#counts, functionCount);
    this.#growth = 2 ** (1 / (halfLifePerFunction * functionCount));
  }

  use(functionIndex: number): void {
    this.#use *= this.#growth;
    this.#counts[functionIndex]! += this.#use;
    if (this.#use > useMax) this.#scale(1 / useMax);
  }

  count(functionIndex: number): number {
    return this.#counts[functionIndex]!;
  }

  /** The count, as it would be if so many more uses came with as many arrivals as there are functions. */
  countWith(functionIndex: number, uses: number): number {
    return this.#counts[functionIndex]! + (uses * this.#use * halfLifePerFunction) / Math.LN2;
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
    for (let index = 0; index < this.#counts.length; index++) this.#counts[index]! *= factor;
    for (const listener of this.#onScale) listener(factor);
  }
}
