import type { Given, FunctionId } from '../../schedule/index.ts';
import type { TraceInvocation } from '../types.ts';

/** Arrival, function, duration and SLO of invocations, a column each; NaN where the trace does not say. */
type Column = Float64Array<ArrayBuffer>;
export const columnCount = 4;

/** Columns of `length` entries; all of them lie in one buffer. */
export function columnsIn(buffer: ArrayBuffer, length: number): Column[] {
  return Array.from({ length: columnCount }, (_, column) => new Float64Array(buffer, column * length * 8, length));
}

/** Invocations in columns: a million of them are four arrays instead of a million objects to collect. */
export class InvocationBuffer {
  #columns: Column[];
  #capacity: number;
  length = 0;

  constructor(capacity = 1024) {
    this.#capacity = capacity;
    this.#columns = columnsIn(new ArrayBuffer(capacity * columnCount * 8), capacity);
  }

  /** Only the first `length` entries of each count. */
  get columns(): readonly Column[] {
    return this.#columns;
  }

  push(arrivalMs: number, functionIndex: Given<FunctionId>, durationMs = NaN, sloMs = NaN): void {
    const at = this.length++;
    if (at === this.#capacity) this.#refill(at * 2, (from, to) => to.set(from));
    const columns = this.#columns;
    columns[0]![at] = arrivalMs;
    columns[1]![at] = functionIndex;
    columns[2]![at] = durationMs;
    columns[3]![at] = sloMs;
  }

  at(index: number): TraceInvocation {
    return invocationAt(this.#columns, index);
  }

  clear(): void {
    this.length = 0;
  }

  #refill(capacity: number, fill: (from: Column, to: Column) => void): void {
    const before = this.#columns;
    this.#capacity = capacity;
    this.#columns = columnsIn(new ArrayBuffer(capacity * columnCount * 8), capacity);
    for (const [index, to] of this.#columns.entries()) fill(before[index]!, to);
  }

  /**
   * Sorts by arrival; invocations at one instant keep their order. Linear time if arrivals spread over the buffer's
   * span, as they do within a minute: each goes to the bucket of its instant, and the result is nearly sorted.
   */
  sort(): void {
    const { length } = this;
    const arrivalMs = this.#columns[0]!;
    let sorted = true;
    let earliestMs = Infinity;
    let latestMs = -Infinity;
    for (let index = 0; index < length; index++) {
      const atMs = arrivalMs[index]!;
      if (atMs < latestMs) sorted = false;
      else latestMs = atMs;
      if (atMs < earliestMs) earliestMs = atMs;
    }
    if (sorted) return;
    const bucketPerMs = length / (latestMs - earliestMs);
    const bucketOf = (atMs: number): number => Math.min(length - 1, Math.floor((atMs - earliestMs) * bucketPerMs));
    const starts = new Uint32Array(length + 1);
    for (let index = 0; index < length; index++) starts[bucketOf(arrivalMs[index]!) + 1]!++;
    let crowdMax = 0;
    for (let bucket = 1; bucket <= length; bucket++) {
      crowdMax = Math.max(crowdMax, starts[bucket]!);
      starts[bucket]! += starts[bucket - 1]!;
    }
    const order = new Uint32Array(length);
    for (let index = 0; index < length; index++) order[starts[bucketOf(arrivalMs[index]!)]!++] = index;
    // Insertion is quadratic in the fullest bucket.
    if (crowdMax > 64) order.sort((a, b) => arrivalMs[a]! - arrivalMs[b]! || a - b);
    else insertionSort(order, arrivalMs);
    this.#refill(this.#capacity, (from, to) => {
      for (let at = 0; at < length; at++) to[at] = from[order[at]!]!;
    });
  }
}

export function invocationAt(columns: readonly Column[], index: number): TraceInvocation {
  const arrivalMs = columns[0]![index]!;
  const functionIndex = columns[1]![index]!;
  const durationMs = columns[2]![index]!;
  const sloMs = columns[3]![index]!;
  if (Number.isNaN(durationMs) && Number.isNaN(sloMs)) return { arrivalMs, functionIndex };
  return {
    arrivalMs,
    functionIndex,
    ...(Number.isNaN(durationMs) ? undefined : { durationMs }),
    ...(Number.isNaN(sloMs) ? undefined : { sloMs }),
  };
}

function insertionSort(order: Uint32Array, keys: Float64Array): void {
  for (let index = 1; index < order.length; index++) {
    const moving = order[index]!;
    const key = keys[moving]!;
    let at = index;
    while (at > 0) {
      const before = order[at - 1]!;
      const beforeKey = keys[before]!;
      if (beforeKey < key || (beforeKey === key && before < moving)) break;
      order[at] = before;
      at--;
    }
    order[at] = moving;
  }
}
