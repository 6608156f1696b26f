/**
 * A token bucket for each caller, kept as one number: the instant at which the bucket will be full again (the "generic
 * cell rate algorithm" of ATM switches). It holds as many requests as may come in a second.
 */
import { LRUCache } from 'lru-cache';

/** A caller that was not seen for so many others begins anew, with a full bucket. */
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
   * Counts a request of `caller` unless it is one too many.
   *
   * @returns milliseconds until it would be taken; 0: it was
   */
  take(caller: string, nowMs: number): number {
    const fullAtMs = Math.max(this.#fullAtMs.get(caller) ?? 0, nowMs);
    // Sums of thirds of a millisecond are off by less than this.
    const waitMs = fullAtMs - nowMs - this.#burstMs;
    if (waitMs > 1e-6) return waitMs;
    this.#fullAtMs.set(caller, fullAtMs + this.#intervalMs);
    return 0;
  }
}
