/** What is known about one function from its loads, calls and arrivals. */
import { sessionBytesOf } from '../../hardware/index.ts';
import { smoothed } from '../../tools/index.ts';
import { type InstanceSpec, arrivalWindowMs } from '../types.ts';

const sessionBytesMin = sessionBytesOf(0);
/**
 * A measured session counts within bounds, this multiple at most: its process may have reused memory, or taken some for
 * itself.
 */
const sessionShareMax = 4;
const sessionBytesSpare = 2 * 2 ** 20;

export class FunctionFacts {
  #sessionBytes: number | undefined;
  /** Most that runs keep beside the session; undefined until a process with runs has been weighed. */
  #runBytes: number | undefined;
  #loadMs: number | undefined;
  #startMs: number | undefined;

  /** Smoothed over loads into a running process. */
  get loadMs(): number | undefined {
    return this.#loadMs;
  }

  /** From taking a process until the replica was ready, smoothed; undefined before the first. */
  get startMs(): number | undefined {
    return this.#startMs;
  }

  /** Expected size of a session, without what its runs keep. */
  sessionBytes({ modelBytes = 0 }: InstanceSpec): number {
    return this.#sessionBytes ?? sessionBytesOf(modelBytes);
  }

  /** What its runs keep: in a process of its own in an arena, in a shared one in the heap of all its sessions. */
  runBytes({ runBytes = 0 }: InstanceSpec): number {
    return this.#runBytes ?? runBytes;
  }

  /** A process of its own, in which it has run, keeps so much beside the session. */
  weighed(bytes: number): void {
    this.#runBytes = Math.max(this.#runBytes ?? 0, bytes);
  }

  /** A session was loaded while its process grew by `grownBytes`. Returns the size that it counts with, as above. */
  loaded({ modelBytes = 0 }: InstanceSpec, loadMs: number, grownBytes: number): number {
    this.#loadMs = smoothStart(this.#loadMs, loadMs);
    const bytes = Math.min(
      Math.max(grownBytes, modelBytes, sessionBytesMin / 2),
      modelBytes * sessionShareMax + sessionBytesSpare,
    );
    this.#sessionBytes = Math.round(smoothStart(this.#sessionBytes, bytes));
    return bytes;
  }

  started(ms: number): void {
    this.#startMs = smoothStart(this.#startMs, ms);
  }
}

// A pool's load: how often requests come, and how many are present at once.

/** The window is counted in parts of this length, so that no arrival's own instant need be kept. */
const partMs = 500;
const parts = arrivalWindowMs / partMs;

/** Requests per second over the last {@link arrivalWindowMs}. Instants are performance.now(). */
export class ArrivalRate {
  readonly #counts = new Float64Array(parts);
  /** Index of the part that `#counts` holds last, counted from instant 0. */
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
   * Over the window, or the time since the first instant if that is shorter; at least one part, so that a single
   * request is no flood.
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

/** Time constant of the exponential weights. */
const timeConstantMs = 1000;

/** The load of one pool: arrivals, and rows that wait or run. */
export class PoolLoad {
  #arrivals: ArrivalRate;
  #rows = 0;
  /** The depth at the last change. */
  #depth = 0;
  #changedAtMs: number;

  constructor(nowMs: number) {
    this.#arrivals = new ArrivalRate(nowMs);
    this.#changedAtMs = nowMs;
  }

  arrived(rows: number, nowMs: number): void {
    this.#arrivals.arrived(nowMs);
    this.#change(rows, nowMs);
  }

  /** Rows that were answered, refused or abandoned. */
  left(rows: number, nowMs: number): void {
    this.#change(-rows, nowMs);
  }

  perSecond(nowMs: number): number {
    return this.#arrivals.perSecond(nowMs);
  }

  /** The share of a core that its calls use: their rate times the time of one. */
  coresUsed(nowMs: number, callMs = 0): number {
    return (this.perSecond(nowMs) * callMs) / 1000;
  }

  /** The function's instances were released: earlier arrivals no longer predict later ones. */
  forgetArrivals(nowMs: number): void {
    this.#arrivals = new ArrivalRate(nowMs);
  }

  /** The rows, averaged over time with exponentially falling weights. */
  depth(nowMs: number): number {
    const kept = Math.exp(-Math.max(0, nowMs - this.#changedAtMs) / timeConstantMs);
    return this.#depth * kept + this.#rows * (1 - kept);
  }

  #change(rows: number, nowMs: number): void {
    this.#depth = this.depth(nowMs);
    this.#rows += rows;
    this.#changedAtMs = Math.max(nowMs, this.#changedAtMs);
  }
}

/** Weight of the newest start: the first one on a machine is often twice as slow as the rest. */
const newestStartWeight = 0.5;

export function smoothStart(beforeMs: number | undefined, ms: number): number {
  return smoothed(beforeMs, ms, newestStartWeight);
}
