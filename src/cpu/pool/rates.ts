/** What a pool knows of its load: how often requests come, and how many are there at once. */
import { arrivalWindowMs } from '../types.ts';

/** The window is counted in parts of this length, so that no instant of any single arrival is kept. */
const partMs = 500;
const parts = arrivalWindowMs / partMs;

/** Requests per second over the last {@link arrivalWindowMs}. Instants are performance.now(). */
export class ArrivalRate {
  readonly #counts = new Float64Array(parts);
  /** Number of the part that `#counts` holds last, counted from instant 0. */
  #part: number;
  readonly #sinceMs: number;

  constructor(nowMs: number) {
    this.#sinceMs = nowMs;
    this.#part = Math.floor(nowMs / partMs);
  }

  arrived(nowMs: number): void {
    this.#advance(nowMs);
    const at = this.#part % parts;
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  /**
   * Since the first instant, where that is less than the window ago; a whole part at least, lest one request be a
   * flood.
   */
  perSecond(nowMs: number): number {
    this.#advance(nowMs);
    let count = 0;
    for (const part of this.#counts) count += part;
    const fromMs = Math.max(this.#sinceMs, (this.#part - parts + 1) * partMs);
    return (count / Math.max(partMs, nowMs - fromMs)) * 1000;
  }

  #advance(nowMs: number): void {
    const part = Math.floor(nowMs / partMs);
    if (part - this.#part >= parts) this.#counts.fill(0);
    else for (let passed = this.#part + 1; passed <= part; passed++) this.#counts[passed % parts] = 0;
    this.#part = Math.max(part, this.#part);
  }
}

/** Weight of the past after one second. */
const timeConstantMs = 1000;

/** A value that is told at irregular instants, as its average over time with weights that fall off exponentially. */
export class Smoothed {
  #average = 0;
  #value = 0;
  #atMs: number;

  constructor(nowMs: number) {
    this.#atMs = nowMs;
  }

  /** The value is this from now on. */
  set(value: number, nowMs: number): void {
    this.#average = this.at(nowMs);
    this.#value = value;
    this.#atMs = Math.max(nowMs, this.#atMs);
  }

  at(nowMs: number): number {
    const kept = Math.exp(-Math.max(0, nowMs - this.#atMs) / timeConstantMs);
    return this.#average * kept + this.#value * (1 - kept);
  }
}

/** The load of one pool: arrivals, and rows that are there, waiting or running. */
export class PoolLoad {
  #arrivals: ArrivalRate;
  readonly #depth: Smoothed;
  #rows = 0;

  constructor(nowMs: number) {
    this.#arrivals = new ArrivalRate(nowMs);
    this.#depth = new Smoothed(nowMs);
  }

  arrived(rows: number, nowMs: number): void {
    this.#arrivals.arrived(nowMs);
    this.#change(rows, nowMs);
  }

  /** Answered, refused or given up. */
  left(rows: number, nowMs: number): void {
    this.#change(-rows, nowMs);
  }

  perSecond(nowMs: number): number {
    return this.#arrivals.perSecond(nowMs);
  }

  /** The arrivals up to now say nothing of what is to come: the function has been given back. */
  forgetArrivals(nowMs: number): void {
    this.#arrivals = new ArrivalRate(nowMs);
  }

  depth(nowMs: number): number {
    return this.#depth.at(nowMs);
  }

  #change(rows: number, nowMs: number): void {
    this.#rows += rows;
    this.#depth.set(this.#rows, nowMs);
  }
}

/** Weight of the newest start among those before it: the first one of a machine is often twice as slow as the rest. */
const newestStartWeight = 0.5;

export function smoothStart(beforeMs: number | undefined, ms: number): number {
  return beforeMs === undefined ? ms : beforeMs + newestStartWeight * (ms - beforeMs);
}
