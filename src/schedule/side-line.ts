import { grown } from './columns.ts';
import type { ServedFunction } from './function.ts';
import { Heap } from './heap.ts';
import type { Invocation } from './invocation.ts';
import { farMs, keyFor } from './lines.ts';
import { tuning } from './tuning.ts';

const { shareBoundMs, deadlineSteps } = tuning.queues;

/** How much of the time within a step of deadlines counts: less than any demand, so that it only orders what is equal. */
const withinStep = 2 ** -10;

/**
 * The queue of the CPU or of the workers: by priority, then by the latest start that still meets the SLO, in steps, put off by
 * the demand of the function beyond its share of the place. Late calls are behind, by arrival. The share is that of
 * start-time fair queueing (Goyal 1996), counted when an invocation joins, so that one function with ten times too many
 * calls does not make the others late.
 *
 * In steps, because a deadline says who must be first only where time is short. To the millisecond it would be the order
 * of arrival among functions with equal SLOs: a function with a call now and then would wait behind all of one that has
 * hundreds waiting.
 */
export class SideLine {
  readonly onTime = new Heap<Invocation>();
  readonly late = new Heap<Invocation>();
  startsSinceOverdue = 0;
  /** Lane milliseconds of all waiting calls. */
  waitingMs = 0;
  /** By invocation number: a call that joins looks at those of all that are before it. */
  #laneMs = new Float64Array(64);
  /** The same by priority, and how many calls of each wait. */
  readonly #waitingOf = new Map<number, { calls: number; ms: number }>();
  /** By function: the virtual clock at which everything that it has asked for has had its share. */
  #askedUntilMs = new Float64Array(64);
  #askedUntilMostMs = 0;
  #virtualMs = 0;

  get size(): number {
    return this.onTime.size + this.late.size;
  }

  /** Whether one of the waiting calls has a priority above another's: then a call may be passed over without end. */
  get isMixed(): boolean {
    return this.#waitingOf.size > 1;
  }

  has(invocation: Invocation): boolean {
    return this.onTime.has(invocation) || this.late.has(invocation);
  }

  /** Joins on time. @param laneMs lane time of its run @param lanes of the place */
  add(invocation: Invocation, latestStartMs: number, laneMs: number, lanes: number, nowMs: number): void {
    // While the queue is empty, no function has had more than its share.
    if (this.size === 0) this.#virtualMs = this.#askedUntilMostMs;
    const { fn } = invocation;
    const shareMs = this.#nextShareMs(fn);
    this.#askedUntilMs[fn.number] = shareMs + laneMs / lanes;
    this.#askedUntilMostMs = Math.max(this.#askedUntilMostMs, shareMs + laneMs / lanes);
    invocation.latestStartMs = latestStartMs;
    invocation.shareMs = shareMs;
    this.onTime.add(invocation, keyFor(invocation.priority, stepOf(latestStartMs, nowMs)) + shareMs);
    this.#count(invocation, laneMs);
  }

  /** Joins late: by arrival. */
  addLate(invocation: Invocation, laneMs: number): void {
    this.late.add(invocation, invocation.sequence);
    this.#count(invocation, laneMs);
  }

  /** Goes behind the calls on time. */
  makeLate(invocation: Invocation): void {
    this.onTime.remove(invocation);
    this.late.add(invocation, invocation.sequence);
  }

  /**
   * Lane milliseconds that would start before an invocation of the function that joined on time now. Stops counting
   * beyond `mostMs`: that is too much already.
   */
  msBefore(fn: ServedFunction, latestStartMs: number, priority: number, mostMs: number, nowMs: number): number {
    // Without a deadline it is behind nearly everything of its priority, so the total will do.
    if (latestStartMs >= farMs) return this.#waitingMsFrom(priority);
    const key = keyFor(priority, stepOf(latestStartMs, nowMs)) + this.#nextShareMs(fn);
    return this.onTime.sumUpTo(key, this.#laneMs, mostMs);
  }

  /** The invocation starts: the virtual clock moves to its share. */
  begin(invocation: Invocation): void {
    if (this.onTime.has(invocation)) this.#virtualMs = Math.max(this.#virtualMs, invocation.shareMs);
    this.remove(invocation);
  }

  remove(invocation: Invocation): void {
    this.onTime.remove(invocation);
    this.late.remove(invocation);
    const laneMs = this.#laneMs[invocation.number]!;
    this.waitingMs = this.size === 0 ? 0 : this.waitingMs - laneMs;
    const alike = this.#waitingOf.get(invocation.joinedPriority)!;
    alike.ms -= laneMs;
    if (--alike.calls === 0) this.#waitingOf.delete(invocation.joinedPriority);
  }

  /** Those on time whose latest start has passed. Looks at all calls. */
  lateBy(nowMs: number): Invocation[] {
    const found: Invocation[] = [];
    for (let at = 0; at < this.onTime.size; at++) {
      const invocation = this.onTime.at(at);
      if (invocation.latestStartMs < nowMs) found.push(invocation);
    }
    return found;
  }

  /** The earliest arrival of all for which this holds. Looks at all calls. */
  oldest(holds: (invocation: Invocation) => boolean = () => true): Invocation | undefined {
    let found = this.late.firstThat(holds);
    for (let at = 0; at < this.onTime.size; at++) {
      const invocation = this.onTime.at(at);
      if (invocation.sequence < (found?.sequence ?? Infinity) && holds(invocation)) found = invocation;
    }
    return found;
  }

  /** All waiting invocations, in no order; of one function, or of all. */
  all(fn?: ServedFunction): Invocation[] {
    const found: Invocation[] = [];
    for (const heap of [this.onTime, this.late]) {
      for (let at = 0; at < heap.size; at++) {
        const invocation = heap.at(at);
        if (fn === undefined || invocation.fn === fn) found.push(invocation);
      }
    }
    return found;
  }

  #nextShareMs({ number }: ServedFunction): number {
    this.#askedUntilMs = grown(this.#askedUntilMs, number + 1);
    const askedMs = Math.max(this.#virtualMs, this.#askedUntilMs[number]!);
    return Math.min(askedMs, this.#virtualMs + shareBoundMs);
  }

  #waitingMsFrom(priority: number): number {
    if (!this.isMixed && this.#waitingOf.has(priority)) return this.waitingMs;
    let ms = 0;
    for (const [other, alike] of this.#waitingOf) if (other >= priority) ms += alike.ms;
    return ms;
  }

  #count(invocation: Invocation, laneMs: number): void {
    const { priority } = invocation;
    this.#laneMs = grown(this.#laneMs, invocation.number + 1);
    this.#laneMs[invocation.number] = laneMs;
    invocation.joinedPriority = priority;
    this.waitingMs += laneMs;
    const alike = this.#waitingOf.get(priority);
    if (alike === undefined) this.#waitingOf.set(priority, { calls: 1, ms: laneMs });
    else {
      alike.calls++;
      alike.ms += laneMs;
    }
  }
}

/**
 * The latest start of a call that joins now, as the order counts it: where a step begins, of which the time that it has
 * holds eight to sixteen, so that a call is at most an eighth of its time before one with an earlier deadline.
 */
function stepOf(latestStartMs: number, nowMs: number): number {
  const spareMs = latestStartMs - nowMs;
  // What is past has no time left, and where there is no deadline there are no steps.
  if (!(spareMs > 0) || latestStartMs >= farMs) return latestStartMs;
  const stepMs = 2 ** Math.floor(Math.log2(spareMs / deadlineSteps));
  const beginMs = Math.floor(latestStartMs / stepMs) * stepMs;
  return beginMs + (latestStartMs - beginMs) * withinStep;
}
