import { grown } from './columns.ts';

/**
 * A binary min-heap of numbers by key that knows where each number stands. Among equal keys the lower number is first.
 */
export class IndexedHeap {
  #heap = new Int32Array(64);
  #size = 0;
  #keys = new Float64Array(64);
  /** Position plus one; 0: not in the heap. */
  #places = new Int32Array(64);

  get size(): number {
    return this.#size;
  }

  /** For numbers below this count. */
  grow(count: number): void {
    this.#heap = grown(this.#heap, count);
    this.#keys = grown(this.#keys, count);
    this.#places = grown(this.#places, count);
  }

  /** The number must not be in the heap. */
  add(index: number, key: number): void {
    this.#keys[index] = key;
    this.#rise(index, this.#size++);
  }

  /** Does nothing if the number is not in the heap. */
  remove(index: number): void {
    const place = this.#places[index]! - 1;
    if (place < 0) return;
    this.#places[index] = 0;
    const last = this.#heap[--this.#size]!;
    if (last === index) return;
    if (place > 0 && this.#isBefore(last, this.#heap[(place - 1) >> 1]!)) this.#rise(last, place);
    else this.#sink(last, place);
  }

  has(index: number): boolean {
    return this.#places[index]! > 0;
  }

  /** The one with the least key, or -1. */
  first(): number {
    return this.#size === 0 ? -1 : this.#heap[0]!;
  }

  /** The number with the least key among those for which this holds, or -1. Looks at all of them. */
  firstThat(holds: (index: number) => boolean): number {
    let first = -1;
    for (let place = 0; place < this.#size; place++) {
      const index = this.#heap[place]!;
      if ((first < 0 || this.#isBefore(index, first)) && holds(index)) first = index;
    }
    return first;
  }

  /** The number at a position of the heap: 0 is the first, the others are in no order. */
  at(place: number): number {
    return this.#heap[place]!;
  }

  /** The number must be in the heap. */
  keyOf(index: number): number {
    return this.#keys[index]!;
  }

  /** Multiplies every key, which leaves the order as it is. */
  scale(factor: number): void {
    for (let index = 0; index < this.#keys.length; index++) this.#keys[index]! *= factor;
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#keys[a]! - this.#keys[b]!;
    // The order must not depend on the history of the heap.
    return difference < 0 || (difference === 0 && a < b);
  }

  #rise(index: number, from: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const places = this.#places;
    const key = keys[index]!;
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent]!;
      const aboveKey = keys[above]!;
      if (!(key < aboveKey || (key === aboveKey && index < above))) break;
      heap[place] = above;
      places[above] = place + 1;
      place = parent;
    }
    heap[place] = index;
    places[index] = place + 1;
  }

  #sink(index: number, from: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const places = this.#places;
    const size = this.#size;
    const key = keys[index]!;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && this.#isBefore(heap[child + 1]!, heap[child]!)) child++;
      const below = heap[child]!;
      const belowKey = keys[below]!;
      if (!(belowKey < key || (belowKey === key && below < index))) break;
      heap[place] = below;
      places[below] = place + 1;
      place = child;
    }
    heap[place] = index;
    places[index] = place + 1;
  }
}

/** Numbers by their value, the least valuable first. A value may only change while its number is not in the order. */
export class ValueOrder extends IndexedHeap {
  readonly #valueOf: (index: number) => number;

  constructor(valueOf: (index: number) => number) {
    super();
    this.#valueOf = valueOf;
  }

  override add(index: number): void {
    super.add(index, this.#valueOf(index));
  }

  /** Its value is another one now. */
  relayer(index: number): void {
    this.remove(index);
    this.add(index);
  }
}
