/** Seeded randomness. Everything that a trace draws comes from here, so that a seed gives the same bytes everywhere. */

import { mix32 } from '../../tools/index.ts';

export interface RandomSource {
  /** In [0, 1). */
  uniform(): number;
  /** A whole number in [0, count). */
  below(count: number): number;
  /** Exponential with this rate: the mean is 1 / rate; Infinity at rate 0. */
  exponential(rate: number): number;
}

/** A separate seed for part `key` of a larger whole, so that parts can be drawn in any order. */
export function deriveSeed(seed: number, ...keys: readonly number[]): number {
  // Seeds may exceed 32 bits: both halves count.
  let derived = mix32((seed >>> 0) ^ mix32(Math.floor(seed / 2 ** 32) + 0x9e3779b9));
  for (const key of keys) derived = mix32(derived ^ mix32((key + 0x9e3779b9) | 0));
  return derived;
}

/** xoshiro128** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018). */
export class Xoshiro implements RandomSource {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  constructor(seed: number) {
    this.#a = deriveSeed(seed, 1) | 0;
    this.#b = deriveSeed(seed, 2) | 0;
    this.#c = deriveSeed(seed, 3) | 0;
    // The state must not be all zero.
    this.#d = deriveSeed(seed, 4) | 1;
  }

  #next(): number {
    const scrambled = Math.imul(this.#b, 5);
    const result = Math.imul((scrambled << 7) | (scrambled >>> 25), 9);
    const shifted = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= shifted;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result >>> 0;
  }

  uniform(): number {
    // 53 bits: 32 would not distinguish instants within a day of milliseconds.
    return ((this.#next() >>> 5) * 2 ** 26 + (this.#next() >>> 6)) / 2 ** 53;
  }

  below(count: number): number {
    return Math.floor(this.uniform() * count);
  }

  exponential(rate: number): number {
    return -Math.log(1 - this.uniform()) / rate;
  }
}

/** Draws an index in proportion to its weight, in constant time (Walker's alias method as built by Vose, 1991). */
export class WeightedChoice {
  readonly #share: Float64Array;
  readonly #alias: Uint32Array;

  /** Throws RangeError unless the weights are finite, not negative, and at least one is above 0. */
  constructor(weights: ArrayLike<number>) {
    const count = weights.length;
    let total = 0;
    for (let index = 0; index < count; index++) {
      const weight = weights[index]!;
      if (!(weight >= 0) || weight === Infinity) throw new RangeError(`weight ${index} is ${weight}`);
      total += weight;
    }
    if (!(total > 0)) throw new RangeError('there is no weight above 0');
    this.#share = new Float64Array(count);
    this.#alias = new Uint32Array(count);
    const small: number[] = [];
    const large: number[] = [];
    for (let index = 0; index < count; index++) {
      const share = (weights[index]! * count) / total;
      this.#share[index] = share;
      (share < 1 ? small : large).push(index);
    }
    while (small.length > 0 && large.length > 0) {
      const less = small.pop()!;
      const more = large.at(-1)!;
      this.#alias[less] = more;
      this.#share[more] = this.#share[more]! + this.#share[less]! - 1;
      if (this.#share[more] < 1) small.push(large.pop()!);
    }
    // Indices left over by rounding get their full share. A weight of 0 is never among them, since it always finds a
    // partner.
    for (const index of [...small, ...large]) this.#share[index] = 1;
  }

  draw(random: RandomSource): number {
    const place = random.uniform() * this.#share.length;
    const index = Math.floor(place);
    return place - index < this.#share[index]! ? index : this.#alias[index]!;
  }
}

/**
 * A count from the Poisson distribution. Above a mean of 30 by the normal approximation, whose error is then under 1%.
 */
export function poissonCount(mean: number, random: RandomSource): number {
  if (!(mean > 0)) return 0;
  if (mean > 30) {
    // Box and Muller.
    const normal = Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform());
    return Math.max(0, Math.round(mean + Math.sqrt(mean) * normal));
  }
  const limit = Math.exp(-mean);
  let count = -1;
  let product = 1;
  do {
    product *= random.uniform();
    count++;
  } while (product > limit);
  return count;
}

/** 0 to count - 1 in a seeded order (Fisher and Yates). */
export function shuffledIndices(count: number, random: RandomSource): Uint32Array {
  const indices = Uint32Array.from({ length: count }, (_, index) => index);
  for (let last = count - 1; last > 0; last--) {
    const other = random.below(last + 1);
    const moved = indices[last]!;
    indices[last] = indices[other]!;
    indices[other] = moved;
  }
  return indices;
}
