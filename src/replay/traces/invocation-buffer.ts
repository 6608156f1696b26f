import type { TraceInvocation } from '../types.ts';

/** Invocations in columns: a million of them are four arrays instead of a million objects to collect. */
export class InvocationBuffer {
  arrivalMs: Float64Array<ArrayBuffer>;
  functionIndex: Uint32Array<ArrayBuffer>;
  /** NaN if the trace does not say. */
  durationMs: Float64Array<ArrayBuffer>;
  /** NaN: the function's. */
  sloMs: Float64Array<ArrayBuffer>;
  length = 0;

  constructor(capacity = 1024) {
    this.arrivalMs = new Float64Array(capacity);
    this.functionIndex = new Uint32Array(capacity);
    this.durationMs = new Float64Array(capacity);
    this.sloMs = new Float64Array(capacity);
  }

  push(arrivalMs: number, functionIndex: number, durationMs = NaN, sloMs = NaN): void {
    if (this.length === this.arrivalMs.length) this.#grow();
    const at = this.length++;
    this.arrivalMs[at] = arrivalMs;
    this.functionIndex[at] = functionIndex;
    this.durationMs[at] = durationMs;
    this.sloMs[at] = sloMs;
  }

  at(index: number): TraceInvocation {
    return invocationOf(
      this.arrivalMs[index]!,
      this.functionIndex[index]!,
      this.durationMs[index]!,
      this.sloMs[index]!,
    );
  }

  clear(): void {
    this.length = 0;
  }

  #grow(): void {
    const capacity = this.length * 2;
    const grown = new InvocationBuffer(capacity);
    grown.arrivalMs.set(this.arrivalMs);
    grown.functionIndex.set(this.functionIndex);
    grown.durationMs.set(this.durationMs);
    grown.sloMs.set(this.sloMs);
    this.#take(grown);
  }

  /**
   * Sorts by arrival; invocations at one instant keep their order. Linear time if arrivals spread over the buffer's
   * span, as they do within a minute: each goes to the bucket of its instant, and the result is nearly sorted.
   */
  sort(): void {
    const { length, arrivalMs } = this;
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
    this.#reorder(order);
  }

  #reorder(order: Uint32Array): void {
    const { arrivalMs, functionIndex, durationMs, sloMs } = this;
    const next = new InvocationBuffer(arrivalMs.length);
    for (let to = 0; to < order.length; to++) {
      const from = order[to]!;
      next.arrivalMs[to] = arrivalMs[from]!;
      next.functionIndex[to] = functionIndex[from]!;
      next.durationMs[to] = durationMs[from]!;
      next.sloMs[to] = sloMs[from]!;
    }
    this.#take(next);
  }

  #take({ arrivalMs, functionIndex, durationMs, sloMs }: InvocationBuffer): void {
    this.arrivalMs = arrivalMs;
    this.functionIndex = functionIndex;
    this.durationMs = durationMs;
    this.sloMs = sloMs;
  }
}

/** @param durationMs, sloMs NaN: the trace does not say. */
export function invocationOf(
  arrivalMs: number,
  functionIndex: number,
  durationMs: number,
  sloMs: number,
): TraceInvocation {
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
