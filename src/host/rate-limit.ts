/**
 * A token bucket for each caller, stored as one number: the instant at which the bucket will be full again (the
 * "generic cell rate algorithm" of ATM switches). It holds as many requests as may come in a second.
 */
import { LRUCache } from 'lru-cache';

/** Callers remembered. One that was pushed out by so many others starts again with a full bucket. */
const callersKept = 10_000;

export class RateLimit {
  readonly #intervalMs: number;
  readonly #burstMs: number;
  readonly #fullAtMs = new LRUCache<string, number>({ max: callersKept });

  /** @param perSecond requests of one caller, at least 1 */
  constructor(perSecond: number) {
    this.#intervalMs = 1000 / perSecond;
    this.#burstMs = 1000 - this.#intervalMs;
  }

  /**
   * Counts a request of `caller` unless it exceeds the limit.
   *
   * @returns milliseconds until it would be accepted; 0: it was
   */
  take(caller: string, nowMs: number): number {
    const fullAtMs = Math.max(this.#fullAtMs.get(caller) ?? 0, nowMs);
    // Rounding errors of sums of thirds of a millisecond are less than this.
    const waitMs = fullAtMs - nowMs - this.#burstMs;
    if (waitMs > 1e-6) return waitMs;
    this.#fullAtMs.set(caller, fullAtMs + this.#intervalMs);
    return 0;
  }
}
