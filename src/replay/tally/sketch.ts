/**
 * Percentiles of a stream of values: exact while they are few, then from buckets whose width is a fixed share of their
 * value (as in HdrHistogram), so that the error is bounded for any number of values.
 */

const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);
/** Which half of a double holds its exponent: depends on the processor. */
const highWord = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1 ? 1 : 0;
/** Bits of the significand in that half. */
const highBits = 20;
/** Smaller values share a bucket: a millionth of the unit. */
const smallest = 1e-6;

export interface SketchOptions {
  /** Up to so many values are kept exactly. */
  readonly exactMax: number;
  /** Buckets for each doubling: 2 to this power. 0 to 20. */
  readonly precisionBits: number;
}

export class Sketch {
  readonly #exactMax: number;
  readonly #precisionBits: number;
  /** Undefined once there are too many. */
  #values: Float64Array | undefined = new Float64Array(4);
  #sorted = true;
  #counts = new Uint32Array(0);
  /** Bucket of the first count. */
  #first = 0;
  #count = 0;
  #sum = 0;
  #least = Infinity;
  #most = -Infinity;

  constructor({ exactMax, precisionBits }: SketchOptions) {
    this.#exactMax = exactMax;
    this.#precisionBits = precisionBits;
  }

  get count(): number {
    return this.#count;
  }

  /** NaN of nothing. */
  get mean(): number {
    return this.#sum / this.#count;
  }

  /** -Infinity of nothing. */
  get max(): number {
    return this.#most;
  }

  /** The largest error of a percentile, as a share of itself. */
  get error(): number {
    return this.#values === undefined ? 2 ** -(this.#precisionBits + 1) : 0;
  }

  /** A value of 0 or above. */
  record(value: number): void {
    this.#count++;
    this.#sum += value;
    if (value < this.#least) this.#least = value;
    if (value > this.#most) this.#most = value;
    const values = this.#values;
    if (values === undefined) {
      this.#countIn(bucketOf(value, this.#precisionBits), 1);
    } else {
      this.#keep(values, value);
    }
  }

  #keep(values: Float64Array, value: number): void {
    const at = this.#count - 1;
    if (at >= this.#exactMax) {
      this.#spread(values.subarray(0, at));
      this.#countIn(bucketOf(value, this.#precisionBits), 1);
      return;
    }
    let array = values;
    if (at >= array.length) {
      array = new Float64Array(Math.min(this.#exactMax, array.length * 2));
      array.set(values);
      this.#values = array;
    }
    array[at] = value;
    this.#sorted = false;
  }

  /** From values to buckets. */
  #spread(values: Float64Array): void {
    this.#values = undefined;
    for (const value of values) this.#countIn(bucketOf(value, this.#precisionBits), 1);
  }

  #countIn(bucket: number, count: number): void {
    let at = bucket - this.#first;
    if (at < 0 || at >= this.#counts.length) {
      this.#widen(bucket);
      at = bucket - this.#first;
    }
    this.#counts[at]! += count;
  }

  /** The window of buckets grows by whole doublings of the value. */
  #widen(bucket: number): void {
    const step = 2 ** this.#precisionBits;
    const empty = this.#counts.length === 0;
    const from = Math.min(empty ? Infinity : this.#first, Math.floor(bucket / step) * step);
    const to = Math.max(empty ? 0 : this.#first + this.#counts.length, (Math.floor(bucket / step) + 1) * step);
    const counts = new Uint32Array(to - from);
    if (!empty) counts.set(this.#counts, this.#first - from);
    this.#counts = counts;
    this.#first = from;
  }

  /** Adds another sketch's values; its finer buckets are merged, its coarser ones stay. */
  merge(other: Sketch): void {
    if (other.#count === 0) return;
    const kept = other.#values?.subarray(0, other.#count);
    if (kept !== undefined) {
      for (const value of kept) this.record(value);
      return;
    }
    if (this.#values !== undefined) this.#spread(this.#values.subarray(0, this.#count));
    this.#count += other.#count;
    this.#sum += other.#sum;
    this.#least = Math.min(this.#least, other.#least);
    this.#most = Math.max(this.#most, other.#most);
    // By index, here and below: the entries of an array are an object each, and a report asks for thousands of percentiles.
    for (let at = 0; at < other.#counts.length; at++) {
      const count = other.#counts[at]!;
      if (count === 0) continue;
      const value = middleOf(other.#first + at, other.#precisionBits);
      this.#countIn(bucketOf(value, this.#precisionBits), count);
    }
  }

  /**
   * The value that a share `quantile` (0 to 1) of all does not exceed, by the nearest rank: the smallest value whose
   * rank is at least quantile * count. NaN if empty.
   */
  quantile(quantile: number): number {
    if (this.#count === 0) return NaN;
    // 0.99 * 100 may be rounded to 99.00000000000001 or 99; the intended rank is 99.
    const rank = Math.min(this.#count, Math.max(1, Math.ceil(quantile * this.#count - 1e-9)));
    if (this.#values !== undefined) {
      const values = this.#values.subarray(0, this.#count);
      if (!this.#sorted) values.sort();
      this.#sorted = true;
      return values[rank - 1]!;
    }
    let passed = 0;
    for (let at = 0; at < this.#counts.length; at++) {
      passed += this.#counts[at]!;
      if (passed >= rank) {
        const middle = middleOf(this.#first + at, this.#precisionBits);
        return Math.min(this.#most, Math.max(this.#least, middle));
      }
    }
    return this.#most;
  }
}

/** Exponent and the first bits of the significand as one number: it grows with the value, and is read, not computed. */
function bucketOf(value: number, precisionBits: number): number {
  float[0] = value > smallest ? value : smallest;
  return words[highWord]! >>> (highBits - precisionBits);
}

function middleOf(bucket: number, precisionBits: number): number {
  const shift = 2 ** (highBits - precisionBits);
  words[1 - highWord] = 0;
  words[highWord] = bucket * shift;
  const from = float[0]!;
  words[highWord] = (bucket + 1) * shift;
  return (from + float[0]!) / 2;
}
