import {
  Learnt,
  type Invocation,
  type Lanes,
  type Observation,
  type ServedFunction,
  type SideOffer,
} from '../../src/schedule/index.ts';

export interface NpuPlace {
  /** To make another function's compiled model the current one. */
  readonly switchMs: number;
}

/** A neural processor: it has one compiled model at a time, and runs one call after the other. */
export class NpuLane implements Lanes<NpuPlace> {
  readonly id = 'npu';
  #place: NpuPlace | null;
  #current: ServedFunction | undefined;
  #running: { readonly invocation: Invocation; readonly endMs: number } | undefined;
  readonly #runMs = new Learnt();

  constructor(place: NpuPlace | null) {
    this.#place = place;
  }

  get count(): number {
    return this.#place === null ? 0 : 1;
  }

  /** The device is there again, with no model, or gone. */
  set(place: NpuPlace | null): void {
    this.#place = place;
    this.#current = undefined;
  }

  offerFor({ sheet }: ServedFunction): SideOffer | null | undefined {
    return sheet.others?.[this.id];
  }

  canTake(fn: ServedFunction): boolean {
    return this.#place !== null && Boolean(this.offerFor(fn));
  }

  /** Nothing of it is reserved for one function. */
  ownCount(): number {
    return 0;
  }

  hasLane(): boolean {
    return this.#running === undefined;
  }

  laneMs(_fn: ServedFunction, runMs: number): number {
    return runMs;
  }

  leftMs(nowMs: number): number {
    return Math.max(0, (this.#running?.endMs ?? nowMs) - nowMs);
  }

  runMs(fn: ServedFunction): number {
    const switchMs = this.#current === fn ? 0 : (this.#place?.switchMs ?? 0);
    return switchMs + this.#runMs.of(fn.number, this.offerFor(fn)?.latencyMs);
  }

  canStart(): boolean {
    return this.count > 0 && this.hasLane();
  }

  start(invocation: Invocation, endMs: number): boolean {
    const switches = this.#current !== invocation.fn;
    this.#current = invocation.fn;
    this.#running = { invocation, endMs };
    return switches;
  }

  end(invocation: Invocation, observed: Observation | undefined): void {
    if (this.#running?.invocation !== invocation) return;
    this.#running = undefined;
    if (observed?.runMs !== undefined) this.#runMs.observe(invocation.fn.number, observed.runMs);
  }

  forgetRuns({ number }: ServedFunction): void {
    this.#runMs.forget(number);
  }

  forget(fn: ServedFunction): void {
    this.forgetRuns(fn);
    if (this.#current === fn) this.#current = undefined;
  }
}
