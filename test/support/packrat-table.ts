/** Packrat's whole table, computed by the paper's recurrence, to check the planner's shortcuts. */
import type { PoolProfile } from '../../src/profile/index.ts';
import { itemsOf } from '../../src/plan/packrat/items.ts';

export interface PackratTableOptions {
  /** T: the table has rows 0..T. */
  readonly threads: number;
  /** B: the table has columns 0..B. */
  readonly batch: number;
  /**
   * False (default): instances use exactly t threads, as in the paper's recurrence. True: at most t, as in its Equation
   * 2.
   */
  readonly idleThreads?: boolean;
}

/**
 * The optimizer's whole table (Packrat, 3.3): `opt[t][b]` is the least latency, in milliseconds, of b items on t threads,
 *
 *   opt[t][b] = min over profiled <t', b'> of max(opt[t - t'][b - b'], L[t'][b'])
 *
 * and Infinity if no set of profiled instances adds up. Row 0 and column 0 are Infinity, except `opt[0][0] = 0`. Takes
 * O(T x B x profiled instances).
 */
export function packratTable(profile: PoolProfile, options: PackratTableOptions): readonly Float64Array[] {
  const { threads, batch, idleThreads = false } = options;
  const items = itemsOf(profile, threads, batch);
  const table = Array.from({ length: threads + 1 }, () => new Float64Array(batch + 1).fill(Infinity));
  (table[0] as Float64Array)[0] = 0;
  for (let t = 1; t <= threads; t++) {
    const row = table[t] as Float64Array;
    if (idleThreads) row.set((table[t - 1] as Float64Array).subarray(1), 1);
    for (const item of items) {
      if (item.threads > t) continue;
      const before = table[t - item.threads] as Float64Array;
      const { batch: itemBatch, latencyMs } = item;
      for (let b = itemBatch; b <= batch; b++) {
        const rest = before[b - itemBatch] as number;
        const latest = rest > latencyMs ? rest : latencyMs;
        if (latest < (row[b] as number)) row[b] = latest;
      }
    }
  }
  return table;
}
