import { LRUCache } from 'lru-cache';
import { grown } from './columns.ts';
import { ValueOrder } from './heap.ts';
import type { Slot } from './slots.ts';

/** Whose layers go next, among the idle functions of a GPU. Keyed by row of the GPU's memory. */
export interface EvictionOrder {
  /**
   * The row has just become idle, or has just lost its suffix. @param hasSuffix whether it has layers that can be
   * trimmed.
   */
  add(row: number, hasSuffix: boolean): void;
  remove(row: number): void;
  /** The row has other layers now, but does not count as more recently used. */
  relayer(row: number, hasSuffix: boolean): void;
  /** The next to lose layers, or -1. It stays the next until it is removed. */
  first(): number;
  grow(rows: number): void;
}

const nobody = -1;

/** An LRU list without a limit: the memory counts the bytes and says when something has to go. */
export const recencyList = (): LRUCache<number, number> =>
  new LRUCache({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: () => 1 });

/** Removes and returns the least recently used; -1 when the list is empty. */
export const popLeastRecent = (list: LRUCache<number, number>): number => list.pop() ?? nobody;

/** Least recently used first. Rows with a suffix to trim go before those without. */
export class RecencyOrder implements EvictionOrder {
  readonly #untrimmed = recencyList();
  readonly #trimmed = recencyList();
  /** The next row, already removed from the lists. */
  #next = nobody;

  add(row: number, hasSuffix: boolean): void {
    (hasSuffix ? this.#untrimmed : this.#trimmed).set(row, row);
  }

  remove(row: number): void {
    if (this.#next === row) this.#next = nobody;
    else if (!this.#untrimmed.delete(row)) this.#trimmed.delete(row);
  }

  relayer(row: number, hasSuffix: boolean): void {
    const [list, other] = hasSuffix ? [this.#untrimmed, this.#trimmed] : [this.#trimmed, this.#untrimmed];
    if (other.delete(row)) list.set(row, row);
  }

  first(): number {
    if (this.#next === nobody) this.#next = popLeastRecent(this.#untrimmed);
    if (this.#next === nobody) this.#next = popLeastRecent(this.#trimmed);
    return this.#next;
  }

  grow(): void {}
}

/**
 * Greedy dual size frequency (Cherkasova 1998): uses while resident times cost of loading over size, plus the value of
 * the latest eviction.
 */
export class GreedyDual {
  readonly order: EvictionOrder;
  readonly #values: ValueOrder;
  #uses = new Int32Array(64);
  #ageAtUse = new Float64Array(64);
  /** The value that was evicted last. */
  #age = 0;

  constructor(slotOf: (row: number) => Slot) {
    this.#values = new ValueOrder((row) => {
      const { offer, bytes } = slotOf(row);
      const costMs = offer!.ways[0].coldMs[0]! - offer!.warmMs;
      return this.#ageAtUse[row]! + (this.#uses[row]! * costMs) / bytes;
    });
    this.order = this.#values;
  }

  /** The row was used, and is idle now. */
  use(row: number): void {
    this.#uses = grown(this.#uses, row + 1);
    this.#ageAtUse = grown(this.#ageAtUse, row + 1);
    this.#uses[row]!++;
    this.#ageAtUse[row] = this.#age;
  }

  /** The row is about to be evicted. */
  evicts(row: number): void {
    this.#age = this.#values.keyOf(row);
  }

  /** Nothing is left in the row: the function that gets it next starts without uses. */
  forget(row: number): void {
    if (row < this.#uses.length) this.#uses[row] = 0;
  }
}
