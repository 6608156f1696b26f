/** The random numbers of the DeepPlan artifact's client, for its own arrivals. */
import type { RandomSource } from '../../src/replay/index.ts';

const minstdModulus = 2_147_483_647;
const minstdMultiplier = 48_271;
/** How many values one draw can take: 1 to the modulus less 1. */
const minstdRange = minstdModulus - 1;

/**
 * C++'s `std::minstd_rand` with libstdc++'s distributions, as in the DeepPlan artifact's client, with seed 0. The same
 * seed gives the artifact's own sequence of intervals and functions.
 */
export class MinstdRandom implements RandomSource {
  #state: number;

  constructor(seed = 0) {
    // As in the standard: a state of 0 would stay 0, so it becomes 1.
    this.#state = seed % minstdModulus || 1;
  }

  /** 1 to 2147483646. */
  next(): number {
    // Below 2^47, so exact in a double.
    this.#state = (this.#state * minstdMultiplier) % minstdModulus;
    return this.#state;
  }

  uniform(): number {
    // Two draws make the 53 bits of a double: each gives 30.
    const first = this.next() - 1;
    const second = this.next() - 1;
    const value = (first + second * minstdRange) / (minstdRange * minstdRange);
    return value < 1 ? value : 1 - Number.EPSILON / 2;
  }

  below(count: number): number {
    // The distribution's range is inclusive, and the generator counts from 1.
    const scaling = Math.floor((minstdRange - 1) / count);
    const past = count * scaling;
    for (;;) {
      const drawn = this.next() - 1;
      if (drawn < past) return Math.floor(drawn / scaling);
    }
  }

  exponential(rate: number): number {
    return -Math.log(1 - this.uniform()) / rate;
  }
}
