/** Kinds of what is due. */
export const due = { finished: 0, link: 1, wake: 2, gpuChange: 3, staged: 4, session: 5 } as const;
export const kindBits = 3;
/** A kind, and the number of what it concerns, in one. */
export const dueKey = (kind: number, number: number): number => (number << kindBits) | kind;

/** Pending events: a binary heap by due time, then by insertion order. */
export class DueHeap {
  #dueMs = new Float64Array(256);
  #sequence = new Float64Array(256);
  #what = new Float64Array(256);
  #size = 0;
  #added = 0;
  /** The entry that was taken last: its due time, the number that `add` returned, and its content. */
  takenMs = NaN;
  takenSequence = 0;
  taken = 0;

  get size(): number {
    return this.#size;
  }

  /** @returns the number of the entry */
  add(dueMs: number, what: number): number {
    if (this.#size === this.#dueMs.length) this.#grow();
    const sequence = this.#added++;
    let slot = this.#size++;
    while (slot > 0) {
      const parent = (slot - 1) >> 1;
      // Among equal times the older one is above already.
      if (this.#dueMs[parent]! <= dueMs) break;
      this.#move(parent, slot);
      slot = parent;
    }
    this.#dueMs[slot] = dueMs;
    this.#sequence[slot] = sequence;
    this.#what[slot] = what;
    return sequence;
  }

  /** Takes the next entry if it is due by this instant. */
  take(byMs: number): boolean {
    if (this.#size === 0 || this.#dueMs[0]! > byMs) return false;
    this.takenMs = this.#dueMs[0]!;
    this.takenSequence = this.#sequence[0]!;
    this.taken = this.#what[0]!;
    const last = --this.#size;
    const dueMs = this.#dueMs[last]!;
    const sequence = this.#sequence[last]!;
    const what = this.#what[last]!;
    let slot = 0;
    for (;;) {
      let child = 2 * slot + 1;
      if (child >= last) break;
      if (child + 1 < last && this.#isBefore(child + 1, child)) child++;
      const childMs = this.#dueMs[child]!;
      if (dueMs < childMs || (dueMs === childMs && sequence < this.#sequence[child]!)) break;
      this.#move(child, slot);
      slot = child;
    }
    this.#dueMs[slot] = dueMs;
    this.#sequence[slot] = sequence;
    this.#what[slot] = what;
    return true;
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#dueMs[a]! - this.#dueMs[b]!;
    return difference < 0 || (difference === 0 && this.#sequence[a]! < this.#sequence[b]!);
  }

  #move(from: number, to: number): void {
    this.#dueMs[to] = this.#dueMs[from]!;
    this.#sequence[to] = this.#sequence[from]!;
    this.#what[to] = this.#what[from]!;
  }

  #grow(): void {
    this.#dueMs = doubled(this.#dueMs);
    this.#sequence = doubled(this.#sequence);
    this.#what = doubled(this.#what);
  }
}

function doubled(array: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  const larger = new Float64Array(array.length * 2);
  larger.set(array);
  return larger;
}
