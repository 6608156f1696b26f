/** Columns of the history as plots need them. */
import type { HistoryAnswer, TickEvent, TrafficColumns, TrafficTotals } from '../../api-types.ts';

export const outcomeNames = ['in_slo', 'late', 'shed', 'failed'] as const;
export const placeNames = ['gpuWarm', 'gpuCold', 'cpu', 'remote'] as const;
const summed = [...outcomeNames, 'offered', 'cold', ...placeNames] as const;

/** Running sums from the last series to the first, so that the first is drawn on top of the rest. */
export function stacked(series: readonly (readonly number[])[]): number[][] {
  const result: number[][] = [];
  let below: number[] | undefined;
  for (const values of series) {
    below = values.map((value, index) => value + (below?.[index] ?? 0));
    result.push(below);
  }
  return result;
}

/** Counts by step as rates per second. */
export function perSecond(counts: readonly number[], stepMs: number): number[] {
  return counts.map((count) => (count * 1000) / stepMs);
}

/** The history one second later: the tick in the place of its step, and what is older than the range gone. */
export function withTick(history: HistoryAnswer, tick: TickEvent): HistoryAnswer {
  const { columns, stepMs } = history;
  const last = columns.atMs.at(-1) ?? -Infinity;
  // A page that slept, or a host that was restarted: the gap is filled by asking again, not by guessing.
  if (stepMs !== 1000 || tick.atMs - last > 5000) return history;
  const length = columns.atMs.length;
  const place = columns.atMs.lastIndexOf(tick.atMs);
  const next: { -readonly [Name in keyof TrafficColumns]: (number | null)[] } = { ...emptyColumns() };
  for (const name of columnNames) {
    const values: (number | null)[] = [...columns[name]];
    const value = name === 'atMs' ? tick.atMs : tick[name];
    if (place >= 0) values[place] = value;
    else values.push(value);
    next[name] = values.slice(-length);
  }
  const moved = next as TrafficColumns;
  return {
    ...history,
    fromMs: moved.atMs[0] ?? history.fromMs,
    toMs: Math.max(history.toMs, tick.atMs + stepMs),
    columns: moved,
    totals: { ...totalsOf(moved), p50Ms: history.totals.p50Ms, p99Ms: history.totals.p99Ms },
  };
}

const columnNames = ['atMs', 'p50Ms', 'p99Ms', ...summed] as const;

function emptyColumns(): Record<(typeof columnNames)[number], (number | null)[]> {
  return Object.fromEntries(columnNames.map((name) => [name, []])) as unknown as Record<
    (typeof columnNames)[number],
    (number | null)[]
  >;
}

export function totalsOf(columns: TrafficColumns): Omit<TrafficTotals, 'p50Ms' | 'p99Ms'> {
  return Object.fromEntries(
    summed.map((name) => [name, columns[name].reduce((sum, value) => sum + value, 0)]),
  ) as unknown as Omit<TrafficTotals, 'p50Ms' | 'p99Ms'>;
}

/** Of everything that ended, the share within the SLO; null where nothing ended. */
export function goodputShare({
  in_slo,
  late,
  shed,
  failed,
}: Pick<TrafficTotals, 'in_slo' | 'late' | 'shed' | 'failed'>): number | null {
  const ended = in_slo + late + shed + failed;
  return ended === 0 ? null : in_slo / ended;
}

/** The columns between two instants; all of them where there is no zoom. */
export function zoomed(columns: TrafficColumns, zoom: readonly [number, number] | null): TrafficColumns {
  if (zoom === null) return columns;
  const kept = columns.atMs.map((atMs) => atMs >= zoom[0] && atMs <= zoom[1]);
  const next = emptyColumns();
  for (const name of columnNames) next[name] = columns[name].filter((_, index) => kept[index]);
  return next as unknown as TrafficColumns;
}
