import { Learnt } from './learnt.ts';
import type { OfferSheet } from './offer.ts';
import type { Observation, WorkersPlace } from './types.ts';

/** A place beside the GPUs: lanes that each run one thing at a time. `nowMs` and all instants as in the events. */
export interface SidePlace {
  /** 0: the place is gone. */
  readonly lanes: number;
  /** Whether an invocation could ever run there. */
  canTake(functionIndex: number, sheet: OfferSheet): boolean;
  /** Whether something of the function's own is free, which nobody of another function stands before. */
  hasOwn(functionIndex: number, sheet: OfferSheet): boolean;
  /** Whether no lane is missing for a run. */
  hasLane(functionIndex: number, sheet: OfferSheet): boolean;
  /** Lanes that a run takes. */
  lanesOf(sheet: OfferSheet): number;
  /** Lane milliseconds that the runs under way still take. */
  leftMs(nowMs: number): number;
  /** What a run takes that starts at that instant, with all that it has to wait for then. */
  runMs(functionIndex: number, sheet: OfferSheet, startMs: number): number;
  /** Whether an invocation can start now. */
  canStart(functionIndex: number, sheet: OfferSheet): boolean;
  /** Takes what a run needs that is expected to end at `endMs`. Returns whether its session has to be made first. */
  start(invocation: number, functionIndex: number, sheet: OfferSheet, endMs: number, nowMs: number): boolean;
  /** A run has ended, or was refused: then nothing was observed. */
  end(invocation: number, functionIndex: number, observed: Observation | undefined): void;
  forget(functionIndex: number): void;
}

/** The workers behind a queue, as slots. */
export class WorkerSlots implements SidePlace {
  #place: WorkersPlace | null;
  /** By running invocation, when it is expected to end; and the sum of these. */
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

  /** A slot is taken on the way there and back as well. */
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

  forget(functionIndex: number): void {
    this.#runMs.forget(functionIndex);
  }
}
