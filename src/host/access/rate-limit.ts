/**
 * A token bucket for each caller, stored as one number: the instant at which the bucket will be full again (the
 * "generic cell rate algorithm" of ATM switches). It holds as many requests as may come in a second.
 */
import { LRUCache } from 'lru-cache';

/** Callers remembered. One that was pushed out by so many others starts again with a full bucket. */
const callersKept = 10_000;

export type RateLimit = ReturnType<typeof rateLimit>;

/** @param perSecond requests of one caller, at least 1 */
export function rateLimit(perSecond: number) {
  const intervalMs = 1000 / perSecond;
  const burstMs = 1000 - intervalMs;
  const fullAtMs = new LRUCache<string, number>({ max: callersKept });
  /**
   * Counts a request of `caller` unless it exceeds the limit.
   *
   * @returns milliseconds until it would be accepted; 0: it was
   */
  return (caller: string, nowMs: number): number => {
    const fullMs = Math.max(fullAtMs.get(caller) ?? 0, nowMs);
    // Rounding errors of sums of thirds of a millisecond are less than this.
    const waitMs = fullMs - nowMs - burstMs;
    if (waitMs > 1e-6) return waitMs;
    fullAtMs.set(caller, fullMs + intervalMs);
    return 0;
  };
}
