import { LRUCache } from 'lru-cache';
import { grownFloats, grownInts } from './waiting.ts';

/** Whose layers go next, among the functions of a GPU that are idle. */
export interface EvictionOrder {
  /** Has just become idle, or has just lost its suffix. @param hasSuffix whether it has layers that can be trimmed. */
  add(functionIndex: number, hasSuffix: boolean): void;
  remove(functionIndex: number): void;
  /** Has other layers now, and is not in any way more recent for it. */
  relayer(functionIndex: number, hasSuffix: boolean): void;
  /** The next to lose layers, or -1. It stays the next until it is removed. */
  next(): number;
  grow(functionCount: number): void;
}

const nobody = -1;

/** Recency without a limit: the bytes are counted elsewhere, and say when something has to go. */
export const recencyList = (): LRUCache<number, number> =>
  new LRUCache({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: () => 1 });

/** The least recently used, taken out; -1 when there is none. */
export const popLeastRecent = (list: LRUCache<number, number>): number => list.pop() ?? nobody;

/** Least recently used first; of those with a suffix to trim and those without, the former first. */
export class RecencyOrder implements EvictionOrder {
  readonly #untrimmed = recencyList();
  readonly #trimmed = recencyList();
  /** Out of the lists, and next. */
  #next = nobody;

  add(functionIndex: number, hasSuffix: boolean): void {
    (hasSuffix ? this.#untrimmed : this.#trimmed).set(functionIndex, functionIndex);
  }

  remove(functionIndex: number): void {
    if (this.#next === functionIndex) this.#next = nobody;
    else if (!this.#untrimmed.delete(functionIndex)) this.#trimmed.delete(functionIndex);
  }

  relayer(functionIndex: number, hasSuffix: boolean): void {
    const [list, other] = hasSuffix ? [this.#untrimmed, this.#trimmed] : [this.#trimmed, this.#untrimmed];
    if (other.delete(functionIndex)) list.set(functionIndex, functionIndex);
  }

  next(): number {
    if (this.#next === nobody) this.#next = popLeastRecent(this.#untrimmed);
    if (this.#next === nobody) this.#next = popLeastRecent(this.#trimmed);
    return this.#next;
  }

  grow(): void {}
}

/**
 * Least valuable first: a binary heap that knows where each function stands. A value must only change while the function
 * is out of it.
 */
export class ValueOrder implements EvictionOrder {
  readonly #valueOf: (functionIndex: number) => number;
  readonly #heap: number[] = [];
  #values = new Float64Array(64);
  /** Plus one, so that 0 is nowhere. */
  #places = new Int32Array(64);

  constructor(valueOf: (functionIndex: number) => number) {
    this.#valueOf = valueOf;
  }

  grow(functionCount: number): void {
    this.#values = grownFloats(this.#values, functionCount);
    this.#places = grownInts(this.#places, functionCount);
  }

  add(functionIndex: number): void {
    this.#values[functionIndex] = this.#valueOf(functionIndex);
    this.#heap.push(functionIndex);
    this.#rise(functionIndex, this.#heap.length - 1);
  }

  remove(functionIndex: number): void {
    const place = this.#places[functionIndex]! - 1;
    if (place < 0) return;
    this.#places[functionIndex] = 0;
    const last = this.#heap.pop()!;
    if (last === functionIndex) return;
    const parent = (place - 1) >> 1;
    if (place > 0 && this.#isBefore(last, this.#heap[parent]!)) this.#rise(last, place);
    else this.#sink(last, place);
  }

  relayer(functionIndex: number): void {
    this.remove(functionIndex);
    this.add(functionIndex);
  }

  next(): number {
    return this.#heap[0] ?? nobody;
  }

  /** Multiplies every value, which leaves the order as it is. */
  scale(factor: number): void {
    for (let index = 0; index < this.#values.length; index++) this.#values[index]! *= factor;
  }

  /** Value of a function in the order. */
  valueAt(functionIndex: number): number {
    return this.#values[functionIndex]!;
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#values[a]! - this.#values[b]!;
    // Of equals the lower number: the order must not depend on how the heap came about.
    return difference < 0 || (difference === 0 && a < b);
  }

  #rise(functionIndex: number, from: number): void {
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.#heap[parent]!;
      if (!this.#isBefore(functionIndex, above)) break;
      this.#put(above, place);
      place = parent;
    }
    this.#put(functionIndex, place);
  }

  #sink(functionIndex: number, from: number): void {
    const { length } = this.#heap;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= length) break;
      if (child + 1 < length && this.#isBefore(this.#heap[child + 1]!, this.#heap[child]!)) child++;
      const below = this.#heap[child]!;
      if (!this.#isBefore(below, functionIndex)) break;
      this.#put(below, place);
      place = child;
    }
    this.#put(functionIndex, place);
  }

  #put(functionIndex: number, place: number): void {
    this.#heap[place] = functionIndex;
    this.#places[functionIndex] = place + 1;
  }
}
