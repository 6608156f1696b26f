import { grown } from './columns.ts';
import { IndexedHeap } from './heap.ts';
import { Learnt } from './learnt.ts';
import type { OfferSheet } from './offer.ts';
import type { Observation, WorkersPlace } from './types.ts';
import { tuning } from './tuning.ts';

const { shareBoundMs } = tuning.queues;

/** A latest start beyond this counts as no deadline. */
const farMs = 1e11;

/**
 * The queue of the CPU or of the workers: by the latest start that still meets the SLO, put off by the demand of the
 * function beyond its share of the place. Late calls are behind, by arrival. The share is that of start-time fair
 * queueing (Goyal 1996), counted when an invocation joins, so that one function with ten times too many calls does not
 * make the others late.
 */
export class SideLine {
  readonly onTime = new IndexedHeap();
  readonly late = new IndexedHeap();
  startsSinceOverdue = 0;
  /** Lane milliseconds of all waiting calls. */
  waitingMs = 0;
  /** By invocation. */
  #latestStartMs = new Float64Array(64);
  #shareMs = new Float64Array(64);
  #laneMs = new Float64Array(64);
  /** By function: the virtual clock at which everything that it has asked for has had its share. */
  #askedUntilMs = new Float64Array(64);
  #askedUntilMostMs = 0;
  #virtualMs = 0;

  get size(): number {
    return this.onTime.size + this.late.size;
  }

  growFunctions(count: number): void {
    this.#askedUntilMs = grown(this.#askedUntilMs, count);
  }

  grow(count: number): void {
    this.onTime.grow(count);
    this.late.grow(count);
    this.#latestStartMs = grown(this.#latestStartMs, count);
    this.#shareMs = grown(this.#shareMs, count);
    this.#laneMs = grown(this.#laneMs, count);
  }

  /** Joins on time. @param laneMs lane time of its run @param lanes of the place */
  add(invocation: number, functionIndex: number, latestStartMs: number, laneMs: number, lanes: number): void {
    // While the queue is empty, no function has had more than its share.
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

  /** Goes behind the calls on time. */
  makeLate(invocation: number, sequence: number): void {
    this.onTime.remove(invocation);
    this.late.add(invocation, sequence);
  }

  isPast(invocation: number, nowMs: number): boolean {
    return this.#latestStartMs[invocation]! < nowMs;
  }

  /**
   * Lane milliseconds that would start before an invocation of the function that joined on time now. Stops counting
   * beyond `mostMs`: that is too much already.
   */
  msBefore(functionIndex: number, latestStartMs: number, mostMs: number): number {
    // Without a deadline it is behind nearly everything, so the total will do.
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

  /** The invocation starts: the virtual clock moves to its share. */
  begin(invocation: number): void {
    if (this.onTime.has(invocation)) this.#virtualMs = Math.max(this.#virtualMs, this.#shareMs[invocation]!);
    this.remove(invocation);
  }

  remove(invocation: number): void {
    this.onTime.remove(invocation);
    this.late.remove(invocation);
    this.waitingMs = this.size === 0 ? 0 : this.waitingMs - this.#laneMs[invocation]!;
  }

  /** All waiting invocations, in no order; of one function, or of all. */
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

/** A place beside the GPUs: lanes that each run one thing at a time. `nowMs` and all instants as in the events. */
export interface SidePlace {
  /** 0: the place is gone. */
  readonly lanes: number;
  /** Whether an invocation could ever run there. */
  canTake(functionIndex: number, sheet: OfferSheet): boolean;
  /** Whether a resource of the function's own is free, for which no other function's call waits. */
  hasOwn(functionIndex: number, sheet: OfferSheet): boolean;
  /** Whether enough lanes are free for a run. */
  hasLane(functionIndex: number, sheet: OfferSheet): boolean;
  /** Lanes that a run takes. */
  lanesOf(sheet: OfferSheet): number;
  /** Lane milliseconds left of the runs under way. */
  leftMs(nowMs: number): number;
  /** How long a run takes that starts at that instant, including everything it has to wait for then. */
  runMs(functionIndex: number, sheet: OfferSheet, startMs: number): number;
  /** Whether an invocation can start now. */
  canStart(functionIndex: number, sheet: OfferSheet): boolean;
  /**
   * Takes the resources of a run that is expected to end at `endMs`. Returns whether its session has to be made first.
   */
  start(invocation: number, functionIndex: number, sheet: OfferSheet, endMs: number, nowMs: number): boolean;
  /** A run has ended. `observed` is undefined if the place refused it. */
  end(invocation: number, functionIndex: number, observed: Observation | undefined): void;
  /** What was learnt of its runs' times does not hold any more. */
  forgetRuns(functionIndex: number): void;
  forget(functionIndex: number): void;
}

/** The workers behind a queue, as slots. */
export class WorkerSlots implements SidePlace {
  #place: WorkersPlace | null;
  /** By running invocation, its expected end; and the sum of these. */
  readonly #ends = new Map<number, number>();
  #endsMs = 0;
  readonly #runMs = new Learnt();

  constructor(place: WorkersPlace | null) {
    this.#place = place;
  }

  get lanes(): number {
    return this.#place?.slots ?? 0;
  }

  setPlace(place: WorkersPlace | null): void {
    this.#place = place;
  }

  canTake(_functionIndex: number, { workers }: OfferSheet): boolean {
    return Boolean(workers) && this.lanes > 0;
  }

  hasOwn(): boolean {
    return false;
  }

  hasLane(): boolean {
    return this.#ends.size < this.lanes;
  }

  lanesOf(): number {
    return 1;
  }

  leftMs(nowMs: number): number {
    return Math.max(0, this.#endsMs - this.#ends.size * nowMs);
  }

  /** A slot is also taken on the way there and back. */
  runMs(functionIndex: number, { workers }: OfferSheet): number {
    return (this.#place?.roundTripMs ?? 0) + this.#runMs.of(functionIndex, workers?.latencyMs);
  }

  canStart(): boolean {
    return this.hasLane();
  }

  start(invocation: number, _functionIndex: number, _sheet: OfferSheet, endMs: number): boolean {
    this.#ends.set(invocation, endMs);
    this.#endsMs += endMs;
    return false;
  }

  end(invocation: number, functionIndex: number, observed: Observation | undefined): void {
    const endMs = this.#ends.get(invocation);
    if (endMs === undefined) return;
    this.#ends.delete(invocation);
    this.#endsMs = this.#ends.size === 0 ? 0 : this.#endsMs - endMs;
    if (observed?.runMs !== undefined) this.#runMs.observe(functionIndex, observed.runMs);
  }

  forgetRuns(functionIndex: number): void {
    this.#runMs.forget(functionIndex);
  }

  forget(functionIndex: number): void {
    this.forgetRuns(functionIndex);
  }
}
