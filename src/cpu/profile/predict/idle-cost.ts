/** Extra time of a run on an instance that was idle: its core has slowed down, and its caches hold other data. */
export interface IdleCost {
  readonly threads: number;
  /** Mean of the exponential gaps between an answer and the next request, milliseconds. */
  readonly gapMs: number;
  /** Mean milliseconds more than back to back; 0 or more. */
  readonly extraMs: number;
}

/**
 * Milliseconds more after gaps of this mean: linear between no gap and the measured gaps, and beyond the longest the
 * cost of that one. 0 for threads that were not measured.
 */
export function idleExtraMs(costs: readonly IdleCost[], threads: number, gapMs: number): number {
  let below = { gapMs: 0, extraMs: 0 };
  const own = costs.filter((cost) => cost.threads === threads).toSorted((a, b) => a.gapMs - b.gapMs);
  for (const above of own) {
    if (gapMs < above.gapMs) {
      const share = (gapMs - below.gapMs) / (above.gapMs - below.gapMs);
      return below.extraMs + share * (above.extraMs - below.extraMs);
    }
    below = above;
  }
  return below.extraMs;
}
