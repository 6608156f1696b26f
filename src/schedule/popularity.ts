import { grownFloats } from './waiting.ts';

/** A use counts half after so many arrivals for each function that there is. */
const halfLifePerFunction = 8;

/**
 * How often each function is invoked, with older uses counting less. Kept as logarithms: all counts fade alike, so that
 * instead of fading them each new use counts more, without end.
 */
export class Popularity {
  #log2Counts = new Float64Array(64).fill(-Infinity);
  /** Logarithm of what a use counts now. */
  #log2Use = 0;
  #step = 0;

  grow(functionCount: number): void {
    this.#log2Counts = grownFloats(this.#log2Counts, functionCount, -Infinity);
    this.#step = 1 / (halfLifePerFunction * functionCount);
  }

  use(functionIndex: number): void {
    this.#log2Use += this.#step;
    const behind = this.#log2Counts[functionIndex]! - this.#log2Use;
    this.#log2Counts[functionIndex] = this.#log2Use + Math.log2(1 + 2 ** behind);
  }

  /** Base 2; comparable between functions, and with what it was at another time only in its order. */
  logarithm(functionIndex: number): number {
    return this.#log2Counts[functionIndex]!;
  }
}
