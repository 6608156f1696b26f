import { alignUp, arenaAlignment } from '../program/arena.ts';

/** A span of addresses, relative to the memory that it is cut from. */
export interface Range {
  readonly offset: number;
  readonly bytes: number;
}

/**
 * Allocates ranges from a span of memory, and merges freed ones. Pure numbers. A range goes into the smallest hole that
 * takes it, at the low or the high end: long-lived ranges go high, so that they do not lie between short-lived ones.
 */
export class RangeAllocator {
  readonly bytes: number;
  /** By offset. No two touch. */
  readonly #holes: { offset: number; bytes: number }[];
  readonly #used = new Map<number, number>();
  #usedBytes = 0;

  constructor(bytes: number) {
    this.bytes = Math.floor(bytes / arenaAlignment) * arenaAlignment;
    this.#holes = this.bytes > 0 ? [{ offset: 0, bytes: this.bytes }] : [];
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  get freeBytes(): number {
    return this.bytes - this.#usedBytes;
  }

  get largestFreeBytes(): number {
    return this.#holes.reduce((largest, hole) => Math.max(largest, hole.bytes), 0);
  }

  /** The allocated size for so many bytes. */
  sizeOf(bytes: number): number {
    return Math.max(arenaAlignment, alignUp(bytes));
  }

  /** Undefined if no hole is large enough. */
  allocate(bytes: number, end: 'low' | 'high' = 'low'): Range | undefined {
    const size = this.sizeOf(bytes);
    let best = -1;
    for (const [index, hole] of this.#holes.entries()) {
      if (hole.bytes < size) continue;
      if (best >= 0 && (end === 'low' ? hole.bytes >= this.#holes[best]!.bytes : false)) continue;
      best = index;
    }
    const hole = this.#holes[best];
    if (hole === undefined) return undefined;
    const offset = end === 'low' ? hole.offset : hole.offset + hole.bytes - size;
    if (end === 'low') hole.offset += size;
    hole.bytes -= size;
    if (hole.bytes === 0) this.#holes.splice(best, 1);
    this.#used.set(offset, size);
    this.#usedBytes += size;
    return { offset, bytes: size };
  }

  /** Throws RangeError for an offset that is not an allocated range's. */
  free(offset: number): void {
    const bytes = this.#used.get(offset);
    if (bytes === undefined) throw new RangeError(`no range starts at ${offset}`);
    this.#used.delete(offset);
    this.#usedBytes -= bytes;
    let at = this.#holes.findIndex((hole) => hole.offset > offset);
    if (at < 0) at = this.#holes.length;
    const before = this.#holes[at - 1];
    const after = this.#holes[at];
    const joinsBefore = before !== undefined && before.offset + before.bytes === offset;
    const joinsAfter = after !== undefined && offset + bytes === after.offset;
    if (joinsBefore) {
      before.bytes += bytes;
      if (joinsAfter) {
        before.bytes += after.bytes;
        this.#holes.splice(at, 1);
      }
    } else if (joinsAfter) {
      after.offset = offset;
      after.bytes += bytes;
    } else {
      this.#holes.splice(at, 0, { offset, bytes });
    }
  }

  /** Bytes of the hole that ends where a range starts. */
  holeBelow(offset: number): number {
    return this.#holes.find((hole) => hole.offset + hole.bytes === offset)?.bytes ?? 0;
  }

  /** The largest hole above an offset. */
  largestHoleAbove(offset: number): Range | undefined {
    let largest: Range | undefined;
    for (const hole of this.#holes) if (hole.offset > offset && hole.bytes > (largest?.bytes ?? 0)) largest = hole;
    return largest && { ...largest };
  }

  /**
   * Moves an allocated range down into the hole directly below it. Returns the new offset, or undefined if there is no
   * hole.
   */
  slideDown(offset: number): number | undefined {
    const bytes = this.#used.get(offset);
    if (bytes === undefined) throw new RangeError(`no range starts at ${offset}`);
    const at = this.#holes.findIndex((hole) => hole.offset + hole.bytes === offset);
    const hole = this.#holes[at];
    if (hole === undefined) return undefined;
    const lower = hole.offset;
    this.#used.delete(offset);
    this.#used.set(lower, bytes);
    hole.offset += bytes;
    const after = this.#holes[at + 1];
    if (after !== undefined && hole.offset + hole.bytes === after.offset) {
      hole.bytes += after.bytes;
      this.#holes.splice(at + 1, 1);
    }
    return lower;
  }
}
