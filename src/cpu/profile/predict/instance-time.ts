import type { PoolProfile } from '../../../profile/index.ts';

/**
 * Milliseconds of `rows` rows on one instance of `threads` threads running alone: as profiled, or linear between the
 * neighbouring batches; beyond the last batch as several runs of it. Undefined if the threads were not profiled, or the
 * model takes only batches of another size.
 */
export function instanceMs(profile: PoolProfile, threads: number, rows: number): number | undefined {
  const { batches } = profile;
  const times = profile.latency[profile.threads.indexOf(threads)];
  if (times === undefined) return undefined;
  let below: { readonly batch: number; readonly ms: number } | undefined;
  for (const [column, batch] of batches.entries()) {
    const ms = times[column] ?? undefined;
    if (ms === undefined) continue;
    if (batch === rows) return ms;
    if (batch > rows) {
      if (below === undefined) return undefined;
      return below.ms + ((ms - below.ms) * (rows - below.batch)) / (batch - below.batch);
    }
    below = { batch, ms };
  }
  return below === undefined ? undefined : (below.ms * rows) / below.batch;
}
