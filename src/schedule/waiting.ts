/**
 * Invocations that wait for a GPU, in two orders: by priority, and by arrival alone. Doubly linked through arrays indexed
 * by invocation, since an invocation waits in one place at a time and most leave from the middle.
 */
const none = -1;

export class WaitingLists {
  /** By GPU. */
  readonly #first: Int32Array;
  readonly #last: Int32Array;
  readonly #oldest: Int32Array;
  readonly #youngest: Int32Array;
  /** By invocation. */
  #next = new Int32Array(64);
  #previous = new Int32Array(64);
  #younger = new Int32Array(64);
  #older = new Int32Array(64);
  #priority = new Float64Array(64);
  #sequence = new Float64Array(64);
  readonly counts: Int32Array;

  constructor(gpuCount: number) {
    this.#first = new Int32Array(gpuCount).fill(none);
    this.#last = new Int32Array(gpuCount).fill(none);
    this.#oldest = new Int32Array(gpuCount).fill(none);
    this.#youngest = new Int32Array(gpuCount).fill(none);
    this.counts = new Int32Array(gpuCount);
  }

  grow(invocationCount: number): void {
    this.#next = grownInts(this.#next, invocationCount);
    this.#previous = grownInts(this.#previous, invocationCount);
    this.#younger = grownInts(this.#younger, invocationCount);
    this.#older = grownInts(this.#older, invocationCount);
    this.#priority = grownFloats(this.#priority, invocationCount);
    this.#sequence = grownFloats(this.#sequence, invocationCount);
  }

  /** Highest priority first, of equals the earliest; -1 when nothing waits. */
  first(gpu: number): number {
    return this.#first[gpu]!;
  }

  /** The one behind it in that order, or -1. */
  next(invocation: number): number {
    return this.#next[invocation]!;
  }

  last(gpu: number): number {
    return this.#last[gpu]!;
  }

  previous(invocation: number): number {
    return this.#previous[invocation]!;
  }

  /** The earliest arrival, whatever its priority; -1 when nothing waits. */
  oldest(gpu: number): number {
    return this.#oldest[gpu]!;
  }

  /** @param sequence the number of the arrival, rising with time. */
  add(gpu: number, invocation: number, priority: number, sequence: number): void {
    this.#priority[invocation] = priority;
    this.#sequence[invocation] = sequence;
    // Almost always the very end: only priorities and invocations that return from a lost GPU walk.
    let before = this.#last[gpu]!;
    while (
      before !== none &&
      (this.#priority[before]! < priority ||
        (this.#priority[before] === priority && this.#sequence[before]! > sequence))
    ) {
      before = this.#previous[before]!;
    }
    const after = before === none ? this.#first[gpu]! : this.#next[before]!;
    this.#previous[invocation] = before;
    this.#next[invocation] = after;
    if (before === none) this.#first[gpu] = invocation;
    else this.#next[before] = invocation;
    if (after === none) this.#last[gpu] = invocation;
    else this.#previous[after] = invocation;

    let older = this.#youngest[gpu]!;
    while (older !== none && this.#sequence[older]! > sequence) older = this.#older[older]!;
    const younger = older === none ? this.#oldest[gpu]! : this.#younger[older]!;
    this.#older[invocation] = older;
    this.#younger[invocation] = younger;
    if (older === none) this.#oldest[gpu] = invocation;
    else this.#younger[older] = invocation;
    if (younger === none) this.#youngest[gpu] = invocation;
    else this.#older[younger] = invocation;
    this.counts[gpu]!++;
  }

  remove(gpu: number, invocation: number): void {
    const before = this.#previous[invocation]!;
    const after = this.#next[invocation]!;
    if (before === none) this.#first[gpu] = after;
    else this.#next[before] = after;
    if (after === none) this.#last[gpu] = before;
    else this.#previous[after] = before;

    const older = this.#older[invocation]!;
    const younger = this.#younger[invocation]!;
    if (older === none) this.#oldest[gpu] = younger;
    else this.#younger[older] = younger;
    if (younger === none) this.#youngest[gpu] = older;
    else this.#older[younger] = older;
    this.counts[gpu]!--;
  }
}

/** The array, or a larger one with the same beginning. */
export function grownInts(array: Int32Array<ArrayBuffer>, length: number, fill = 0): Int32Array<ArrayBuffer> {
  if (array.length >= length) return array;
  const grown = new Int32Array(Math.max(length, array.length * 2));
  if (fill !== 0) grown.fill(fill);
  grown.set(array);
  return grown;
}

/** The same for floats. */
export function grownFloats(array: Float64Array<ArrayBuffer>, length: number, fill = 0): Float64Array<ArrayBuffer> {
  if (array.length >= length) return array;
  const grown = new Float64Array(Math.max(length, array.length * 2));
  if (fill !== 0) grown.fill(fill);
  grown.set(array);
  return grown;
}
