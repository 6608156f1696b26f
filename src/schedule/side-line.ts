import { grownFloats } from './columns.ts';
import { IndexedHeap } from './heap.ts';

/** One in so many starts is of the one that waits longest, while anything waits beyond the policy's bound. */
export const overdueShare = 16;

/**
 * How far behind others a function can get by what it asks for. More than most SLOs, so that what it has too much of
 * does not make others late; not so much that it would wait for long once it asks for less.
 */
const shareBoundMs = 2000;
/** A start that may be later than this may be as late as it likes. */
const farMs = 1e11;

/**
 * What waits for a place beside the GPUs: by the latest start with which the SLO is still met, put off by what its
 * function has asked for beyond its share of the place; and behind that what is late, by arrival. The share is
 * start-time fair queueing's (Goyal 1996), counted when an invocation joins: so one function with ten times too many
 * does not make the others late.
 */
export class SideLine {
  readonly onTime = new IndexedHeap();
  readonly late = new IndexedHeap();
  startsSinceOverdue = 0;
  /** Lane milliseconds of all that waits. */
  waitingMs = 0;
  /** By invocation. */
  #latestStartMs = new Float64Array(64);
  #shareMs = new Float64Array(64);
  #laneMs = new Float64Array(64);
  /** By function: where the virtual clock stands when all that it has asked for has had its share. */
  #askedUntilMs = new Float64Array(64);
  #askedUntilMostMs = 0;
  #virtualMs = 0;

  get size(): number {
    return this.onTime.size + this.late.size;
  }

  growFunctions(count: number): void {
    this.#askedUntilMs = grownFloats(this.#askedUntilMs, count);
  }

  grow(count: number): void {
    this.onTime.grow(count);
    this.late.grow(count);
    this.#latestStartMs = grownFloats(this.#latestStartMs, count);
    this.#shareMs = grownFloats(this.#shareMs, count);
    this.#laneMs = grownFloats(this.#laneMs, count);
  }

  /** Joins on time. @param laneMs what it takes of the place's lanes, of which there are so many */
  add(invocation: number, functionIndex: number, latestStartMs: number, laneMs: number, lanes: number): void {
    // Where nobody waits, nobody has had too much.
    if (this.size === 0) this.#virtualMs = this.#askedUntilMostMs;
    const shareMs = this.#nextShareMs(functionIndex);
    this.#askedUntilMs[functionIndex] = shareMs + laneMs / lanes;
    this.#askedUntilMostMs = Math.max(this.#askedUntilMostMs, shareMs + laneMs / lanes);
    this.#latestStartMs[invocation] = latestStartMs;
    this.#shareMs[invocation] = shareMs;
    this.onTime.add(invocation, Math.min(latestStartMs, farMs) + shareMs);
    this.#count(invocation, laneMs);
  }

  /** Joins late. @param sequence of its arrival */
  addLate(invocation: number, sequence: number, laneMs: number): void {
    this.late.add(invocation, sequence);
    this.#count(invocation, laneMs);
  }

  /** Goes behind what is on time. */
  makeLate(invocation: number, sequence: number): void {
    this.onTime.remove(invocation);
    this.late.add(invocation, sequence);
  }

  isPast(invocation: number, nowMs: number): boolean {
    return this.#latestStartMs[invocation]! < nowMs;
  }

  /**
   * Lane milliseconds of what would start before an invocation of the function that joined on time now. Beyond `mostMs`
   * it does not go on counting: that is too much already.
   */
  msBefore(functionIndex: number, latestStartMs: number, mostMs: number): number {
    // Without a deadline it is behind nearly everything, however much that is.
    if (latestStartMs >= farMs) return this.waitingMs;
    const key = latestStartMs + this.#nextShareMs(functionIndex);
    let ms = 0;
    const places = [0];
    while (ms <= mostMs) {
      const at = places.pop();
      if (at === undefined) break;
      if (at >= this.onTime.size || this.onTime.keyOf(this.onTime.at(at)) > key) continue;
      ms += this.#laneMs[this.onTime.at(at)]!;
      places.push(2 * at + 1, 2 * at + 2);
    }
    return ms;
  }

  /** It starts: the virtual clock is at its share. */
  begin(invocation: number): void {
    if (this.onTime.has(invocation)) this.#virtualMs = Math.max(this.#virtualMs, this.#shareMs[invocation]!);
    this.remove(invocation);
  }

  remove(invocation: number): void {
    this.onTime.remove(invocation);
    this.late.remove(invocation);
    this.waitingMs = this.size === 0 ? 0 : this.waitingMs - this.#laneMs[invocation]!;
  }

  /** Everything that waits, in no order; of a function, or of all. */
  all(functionOf: Int32Array, functionIndex?: number): number[] {
    const found: number[] = [];
    for (const heap of [this.onTime, this.late]) {
      for (let at = 0; at < heap.size; at++) {
        const invocation = heap.at(at);
        if (functionIndex === undefined || functionOf[invocation] === functionIndex) found.push(invocation);
      }
    }
    return found;
  }

  #nextShareMs(functionIndex: number): number {
    const askedMs = Math.max(this.#virtualMs, this.#askedUntilMs[functionIndex]!);
    return Math.min(askedMs, this.#virtualMs + shareBoundMs);
  }

  #count(invocation: number, laneMs: number): void {
    this.#laneMs[invocation] = laneMs;
    this.waitingMs += laneMs;
  }
}
