/** Latencies counted on a logarithmic scale, so that a quantile of any span of time is a sum of small arrays. */

/** A scale of `count` bounds that grow by a constant factor. */
export interface LatencyScale {
  /** Upper bound of the first bucket, milliseconds. */
  readonly firstMs: number;
  /** From one bound to the next; a quantile is off by at most this factor's square root. */
  readonly growth: number;
  readonly count: number;
}

/** 0.1 ms to two minutes, quantiles within 6%. */
export const fineScale: LatencyScale = { firstMs: 0.1, growth: 1.125, count: 120 };
/** 0.25 ms to two minutes, quantiles within 19%: what is kept of each function for hours. */
export const coarseScale: LatencyScale = { firstMs: 0.25, growth: Math.SQRT2, count: 39 };

/** The bucket of a latency; what is beyond the last bound goes into the last bucket. */
export function bucketOf(scale: LatencyScale, latencyMs: number): number {
  if (!(latencyMs > scale.firstMs)) return 0;
  const index = Math.ceil(Math.log(latencyMs / scale.firstMs) / Math.log(scale.growth) - 1e-9);
  return Math.min(index, scale.count - 1);
}

export const boundMs = (scale: LatencyScale, bucket: number): number => scale.firstMs * scale.growth ** bucket;

/**
 * The latency that a share `quantile` of all stays at or below, between the bucket's bounds; undefined where there is
 * none.
 */
export function quantileMs(scale: LatencyScale, counts: ArrayLike<number>, quantile: number): number | undefined {
  let total = 0;
  for (let bucket = 0; bucket < scale.count; bucket++) total += counts[bucket] ?? 0;
  if (total === 0) return undefined;
  const rank = Math.max(1, quantile * total);
  let below = 0;
  for (let bucket = 0; bucket < scale.count; bucket++) {
    const here = counts[bucket] ?? 0;
    if (below + here >= rank) {
      const upper = boundMs(scale, bucket);
      const lower = bucket === 0 ? 0 : upper / scale.growth;
      return lower + ((rank - below) / here) * (upper - lower);
    }
    below += here;
  }
  return boundMs(scale, scale.count - 1);
}
