import type { PoolProfile } from '../../profile/index.ts';

/** A profiled instance, the item of the knapsack: <t, b> and the latency of one run. */
export interface Item {
  readonly threads: number;
  readonly batch: number;
  readonly latencyMs: number;
}

/** The known cells of a profile that fit into `threads` x `batch`. */
export function itemsOf(profile: PoolProfile, threads: number, batch: number): Item[] {
  const items: Item[] = [];
  for (const [row, itemThreads] of profile.threads.entries()) {
    for (const [column, itemBatch] of profile.batches.entries()) {
      const latencyMs = profile.latency[row]?.[column] ?? null;
      if (latencyMs === null || itemThreads > threads || itemBatch > batch) continue;
      items.push({ threads: itemThreads, batch: itemBatch, latencyMs });
    }
  }
  return items;
}

/**
 * The items of at most `limitMs`. If threads may stay idle, only the one with fewest threads for each batch size: one
 * with more threads adds nothing.
 */
export function itemsWithin(items: readonly Item[], limitMs: number, idleThreads: boolean): Item[] {
  const within = items.filter(({ latencyMs }) => latencyMs <= limitMs);
  if (!idleThreads) return within;
  const leanest = new Map<number, Item>();
  for (const item of within) {
    const other = leanest.get(item.batch);
    if (other === undefined || item.threads < other.threads) leanest.set(item.batch, item);
  }
  return [...leanest.values()];
}
