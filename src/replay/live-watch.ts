/** Detects evictions and plan changes of a live host from the difference between two readings of its metrics. */
import type { ReplayObserver } from './types.ts';

const evictionsTotal = 'turntable_evictions_total';
const planChangesTotal = 'turntable_plan_changes_total';

/** Counts by function and one more label, from Prometheus text; those of several GPUs are summed. */
function countsOf(text: string, metric: string, label: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, figure = ''] = line.startsWith(`${metric}{`) ? (/\} *(\S+)[^}]*$/.exec(line) ?? []) : [];
    const name = labelOf(line, 'function');
    const value = labelOf(line, label);
    const count = figure === '' ? NaN : Number(figure);
    if (name === undefined || value === undefined || !Number.isFinite(count)) continue;
    const key = JSON.stringify([name, value]);
    counts.set(key, (counts.get(key) ?? 0) + count);
  }
  return counts;
}

function labelOf(line: string, label: string): string | undefined {
  const quoted = new RegExp(`[{,]${label}="((?:[^"\\\\]|\\\\.)*)"`).exec(line)?.[1];
  return quoted?.replaceAll(/\\(.)/g, (_, character: string) => (character === 'n' ? '\n' : character));
}

/**
 * Called with each reading of the metrics, it reports each eviction and plan change since the previous one. The first
 * reading only sets the starting counts.
 *
 * @param indexOf the trace's function of this name; evictions of others do not belong to the replay
 */
export function metricsWatch(observer: ReplayObserver, indexOf: (name: string) => number | undefined) {
  let before: readonly Map<string, number>[] | undefined;
  /** Every newly counted event. */
  const more = (now: ReadonlyMap<string, number>, then: ReadonlyMap<string, number>) =>
    [...now].flatMap(([key, count]) => {
      const [name, value] = JSON.parse(key) as [string, string];
      const functionIndex = indexOf(name);
      if (functionIndex === undefined) return [];
      return Array.from({ length: Math.max(0, count - (then.get(key) ?? 0)) }, () => ({ functionIndex, value }));
    });
  return (metrics: string, atMs: number): void => {
    const now = [countsOf(metrics, evictionsTotal, 'cause'), countsOf(metrics, planChangesTotal, 'direction')];
    const known = before;
    before = now;
    if (known === undefined) return;
    const [evictions, planChanges] = now.map((counts, index) => more(counts, known[index]!));
    for (const { functionIndex, value } of evictions!) {
      observer.eviction({ atMs, from: undefined, functionIndex, bytes: 0, cause: value });
    }
    for (const { functionIndex, value } of planChanges!) {
      if (value !== 'smaller' && value !== 'larger') continue;
      observer.planChange?.({ atMs, functionIndex, direction: value });
    }
  };
}
