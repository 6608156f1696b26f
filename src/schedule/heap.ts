import { grownFloats, grownInts } from './columns.ts';

/**
 * A binary heap of numbers by their keys, the least first, that knows where each stands. Of equal keys the lower number
 * is first.
 */
export class IndexedHeap {
  readonly #heap: number[] = [];
  #keys = new Float64Array(64);
  /** Plus one, so that 0 is nowhere. */
  #places = new Int32Array(64);

  get size(): number {
    return this.#heap.length;
  }

  /** For numbers below this count. */
  grow(count: number): void {
    this.#keys = grownFloats(this.#keys, count);
    this.#places = grownInts(this.#places, count);
  }

  /** One that is not in it. */
  add(index: number, key: number): void {
    this.#keys[index] = key;
    this.#heap.push(index);
    this.#rise(index, this.#heap.length - 1);
  }

  /** Nothing happens to one that is not in it. */
  remove(index: number): void {
    const place = this.#places[index]! - 1;
    if (place < 0) return;
    this.#places[index] = 0;
    const last = this.#heap.pop()!;
    if (last === index) return;
    const parent = (place - 1) >> 1;
    if (place > 0 && this.#isBefore(last, this.#heap[parent]!)) this.#rise(last, place);
    else this.#sink(last, place);
  }

  has(index: number): boolean {
    return this.#places[index]! > 0;
  }

  /** The one with the least key, or -1. */
  first(): number {
    return this.#heap[0] ?? -1;
  }

  /** Of those for which this holds, the one with the least key, or -1. Looks at all of them. */
  firstThat(holds: (index: number) => boolean): number {
    let first = -1;
    for (const index of this.#heap) if ((first < 0 || this.#isBefore(index, first)) && holds(index)) first = index;
    return first;
  }

  /** The one at a place of the heap, where 0 is the first and the others stand in no order. */
  at(place: number): number {
    return this.#heap[place]!;
  }

  /** Of one that is in it. */
  keyOf(index: number): number {
    return this.#keys[index]!;
  }

  /** Multiplies every key, which leaves the order as it is. */
  scale(factor: number): void {
    for (let index = 0; index < this.#keys.length; index++) this.#keys[index]! *= factor;
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#keys[a]! - this.#keys[b]!;
    // The order must not depend on how the heap came about.
    return difference < 0 || (difference === 0 && a < b);
  }

  #rise(index: number, from: number): void {
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.#heap[parent]!;
      if (!this.#isBefore(index, above)) break;
      this.#put(above, place);
      place = parent;
    }
    this.#put(index, place);
  }

  #sink(index: number, from: number): void {
    const { length } = this.#heap;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= length) break;
      if (child + 1 < length && this.#isBefore(this.#heap[child + 1]!, this.#heap[child]!)) child++;
      const below = this.#heap[child]!;
      if (!this.#isBefore(below, index)) break;
      this.#put(below, place);
      place = child;
    }
    this.#put(index, place);
  }

  #put(index: number, place: number): void {
    this.#heap[place] = index;
    this.#places[index] = place + 1;
  }
}
