/** What is known of one function from its own loads, calls and arrivals. */
import type { InstanceSpec } from '../types.ts';
import { smoothStart } from './rates.ts';

/**
 * A session of a model that nobody has loaded takes its weights, and as much again of a third of them; facts of its
 * graph.
 */
const sessionShare = 1.3;
const sessionBytesMin = 128 * 1024;
/**
 * A measured session is believed within these bounds only: its process may have reused memory, or taken some for
 * itself.
 */
const sessionShareMax = 4;
const sessionBytesSpare = 2 * 2 ** 20;
/** Weight of the newest gap between two calls among those before it. */
const newestGapWeight = 0.2;
/** Of a load that nobody has measured: by the byte, and at least. */
const loadMsPerByte = 3e-6;
const loadMsMin = 0.5;

export class FunctionFacts {
  #sessionBytes: number | undefined;
  #loadMs: number | undefined;
  #startMs: number | undefined;
  #lastArrivalMs = -Infinity;
  #gapMs: number | undefined;

  /** As last measured. */
  get sessionBytes(): number | undefined {
    return this.#sessionBytes;
  }

  /** Of loads into a process that runs, smoothed. */
  get loadMs(): number | undefined {
    return this.#loadMs;
  }

  /** From taking a process until the replica was ready, smoothed; undefined before the first. */
  get startMs(): number | undefined {
    return this.#startMs;
  }

  /** What a session is expected to take. */
  expectedBytes({ modelBytes = 0 }: InstanceSpec): number {
    return this.#sessionBytes ?? Math.max(sessionBytesMin, modelBytes * sessionShare);
  }

  arrived(nowMs: number): void {
    const gapMs = nowMs - this.#lastArrivalMs;
    this.#lastArrivalMs = nowMs;
    if (gapMs === Infinity) return;
    this.#gapMs = this.#gapMs === undefined ? gapMs : this.#gapMs + newestGapWeight * (gapMs - this.#gapMs);
  }

  /** A session was loaded; its process grew by `grownBytes` meanwhile. Gives what it is taken to have. */
  loaded({ modelBytes = 0 }: InstanceSpec, loadMs: number, grownBytes: number): number {
    this.#loadMs = smoothStart(this.#loadMs, loadMs);
    const bytes = Math.min(
      Math.max(grownBytes, modelBytes, sessionBytesMin / 2),
      modelBytes * sessionShareMax + sessionBytesSpare,
    );
    this.#sessionBytes = smoothStart(this.#sessionBytes, bytes);
    return bytes;
  }

  started(ms: number): void {
    this.#startMs = smoothStart(this.#startMs, ms);
  }

  /** Milliseconds of loads in a millisecond that the loss of its session would cost, at the rate of its calls. */
  lossPerMs({ modelBytes = 0 }: InstanceSpec, nowMs: number): number {
    const loadMs = this.#loadMs ?? Math.max(loadMsMin, modelBytes * loadMsPerByte);
    return loadMs / Math.max(1, this.#gapMs ?? 0, nowMs - this.#lastArrivalMs);
  }
}
