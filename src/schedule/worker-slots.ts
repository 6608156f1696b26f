import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import type { Lanes } from './lanes.ts';
import { Learnt } from './learnt.ts';
import type { SideOffer } from './offer.ts';
import type { Observation, WorkersPlace } from './types.ts';

/** The workers behind a queue, as slots. */
export class WorkerSlots implements Lanes<WorkersPlace> {
  readonly id = 'workers';
  #place: WorkersPlace | null;
  /** By running invocation, its expected end; and the sum of these. */
  readonly #ends = new Map<Invocation, number>();
  #endsMs = 0;
  readonly #runMs = new Learnt();

  constructor(place: WorkersPlace | null) {
    this.#place = place;
  }

  get count(): number {
    return this.#place?.slots ?? 0;
  }

  set(place: WorkersPlace | null): void {
    this.#place = place;
  }

  offerFor({ sheet }: ServedFunction): SideOffer | null | undefined {
    return sheet.others?.[this.id];
  }

  canTake(fn: ServedFunction): boolean {
    return Boolean(this.offerFor(fn)) && this.count > 0;
  }

  ownCount(): number {
    return 0;
  }

  hasLane(): boolean {
    return this.#ends.size < this.count;
  }

  laneMs(_fn: ServedFunction, runMs: number): number {
    return runMs;
  }

  leftMs(nowMs: number): number {
    return Math.max(0, this.#endsMs - this.#ends.size * nowMs);
  }

  /** A slot is also taken on the way there and back. */
  runMs(fn: ServedFunction): number {
    return (this.#place?.roundTripMs ?? 0) + this.#runMs.of(fn.number, this.offerFor(fn)?.latencyMs);
  }

  canStart(): boolean {
    return this.hasLane();
  }

  start(invocation: Invocation, endMs: number): boolean {
    this.#ends.set(invocation, endMs);
    this.#endsMs += endMs;
    return false;
  }

  end(invocation: Invocation, observed: Observation | undefined): void {
    const endMs = this.#ends.get(invocation);
    if (endMs === undefined) return;
    this.#ends.delete(invocation);
    this.#endsMs = this.#ends.size === 0 ? 0 : this.#endsMs - endMs;
    if (observed?.runMs !== undefined) this.#runMs.observe(invocation.fn.number, observed.runMs);
  }

  forgetRuns({ number }: ServedFunction): void {
    this.#runMs.forget(number);
  }

  forget(fn: ServedFunction): void {
    this.forgetRuns(fn);
  }
}
