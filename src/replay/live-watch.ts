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

/** Reports each eviction and plan change since the previous reading. */
export class MetricsWatch {
  #before: readonly Map<string, number>[] | undefined;
  readonly #observer: ReplayObserver;
  readonly #indexOf: (name: string) => number | undefined;

  /** @param indexOf the trace's function of this name; evictions of others do not belong to the replay */
  constructor(observer: ReplayObserver, indexOf: (name: string) => number | undefined) {
    this.#observer = observer;
    this.#indexOf = indexOf;
  }

  /** The first reading only sets the starting counts. */
  read(metrics: string, atMs: number): void {
    const now = [countsOf(metrics, evictionsTotal, 'cause'), countsOf(metrics, planChangesTotal, 'direction')];
    const before = this.#before;
    this.#before = now;
    if (before === undefined) return;
    const [evictions, planChanges] = now.map((counts, index) => this.#more(counts, before[index]!));
    for (const { functionIndex, value } of evictions!) {
      this.#observer.eviction({ atMs, gpu: -1, functionIndex, bytes: 0, cause: value });
    }
    for (const { functionIndex, value } of planChanges!) {
      if (value !== 'smaller' && value !== 'larger') continue;
      this.#observer.planChange?.({ atMs, functionIndex, direction: value });
    }
  }

  /** Every newly counted event. */
  #more(
    now: ReadonlyMap<string, number>,
    before: ReadonlyMap<string, number>,
  ): { readonly functionIndex: number; readonly value: string }[] {
    return [...now].flatMap(([key, count]) => {
      const [name, value] = JSON.parse(key) as [string, string];
      const functionIndex = this.#indexOf(name);
      if (functionIndex === undefined) return [];
      const more = Math.max(0, count - (before.get(key) ?? 0));
      return Array.from({ length: more }, () => ({ functionIndex, value }));
    });
  }
}
