const kindBits = 3;

export interface Due<Kind> {
  readonly atMs: number;
  /** Counts the entries. */
  readonly sequence: number;
  readonly kind: Kind;
  /** The number of the invocation, GPU or other thing that it concerns. */
  readonly number: number;
}

/** Pending events of at most eight kinds: a binary heap by due time, then by insertion order. */
export class DueHeap<Kind extends string> {
  readonly #kinds: readonly Kind[];
  #dueMs = new Float64Array(256);
  #sequence = new Float64Array(256);
  #what = new Float64Array(256);
  #size = 0;
  #added = 0;
  /** Reused for each that is taken. */
  readonly #taken: { -readonly [Field in keyof Due<Kind>]: Due<Kind>[Field] };

  constructor(kinds: readonly [Kind, ...Kind[]]) {
    this.#kinds = kinds;
    this.#taken = { atMs: NaN, sequence: 0, kind: kinds[0], number: 0 };
  }

  get size(): number {
    return this.#size;
  }

  /** @returns the sequence number of the entry */
  add(dueMs: number, kind: Kind, number: number): number {
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
    let index = 0;
    while (this.#kinds[index] !== kind) index++;
    this.#what[slot] = (number << kindBits) | index;
    return sequence;
  }

  /** Takes the next entry if it is due by this instant; it holds until the next one is taken. */
  take(byMs: number): Due<Kind> | undefined {
    if (this.#size === 0 || this.#dueMs[0]! > byMs) return undefined;
    const taken = this.#taken;
    taken.atMs = this.#dueMs[0]!;
    taken.sequence = this.#sequence[0]!;
    taken.kind = this.#kinds[this.#what[0]! & ((1 << kindBits) - 1)]!;
    taken.number = this.#what[0]! >> kindBits;
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
    return taken;
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

/** What is to be done at entries of a heap, by number; numbers are used again. */
export class Acts {
  readonly #acts: ((() => void) | undefined)[] = [];
  readonly #free: number[] = [];

  add(act: () => void): number {
    const number = this.#free.pop() ?? this.#acts.length;
    this.#acts[number] = act;
    return number;
  }

  run(number: number): void {
    const act = this.#acts[number]!;
    this.#acts[number] = undefined;
    this.#free.push(number);
    act();
  }
}

function doubled(array: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  const larger = new Float64Array(array.length * 2);
  larger.set(array);
  return larger;
}
