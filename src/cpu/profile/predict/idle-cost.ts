/**
 * What a run costs more on an instance that had nothing to do: its core has slowed down, and its caches are others' by
 * then.
 */
export interface IdleCost {
  readonly threads: number;
  /** Mean of the exponential gaps between an answer and the next request, milliseconds. */
  readonly gapMs: number;
  /** Mean milliseconds more than in a row without gaps; 0 or more. */
  readonly extraMs: number;
}

/**
 * Milliseconds more after gaps of this mean: on the straight line between the measured gaps and from none at all, and
 * beyond the longest what that costs. 0 for threads that were not measured.
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
