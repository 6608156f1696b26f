/** Columns of the history in the form that plots need. */
import { placeNames } from '../../../calls/placement.ts';
import type { HistoryAnswer, TickEvent, TrafficColumns, TrafficTotals } from '../../api-types.ts';

export const outcomeNames = ['in_slo', 'late', 'shed', 'failed'] as const;
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

/** Steps of a plot: more of them than this are too thin to see. */
const stepsMax = 240;

export type Counts = Readonly<Record<(typeof summed)[number] | 'atMs', readonly number[]>>;

/** The counts in steps of several, where there are too many; only whole steps, since part of one would look like a dip. */
export function coarser(columns: TrafficColumns, stepMs: number): { readonly counts: Counts; readonly stepMs: number } {
  const joined = Math.ceil(columns.atMs.length / stepsMax);
  if (joined <= 1) return { counts: columns, stepMs };
  const wideMs = joined * stepMs;
  // Steps begin at the same instants whatever the range begins with; so they do not flicker when it moves.
  const first = columns.atMs.findIndex((atMs) => atMs % wideMs === 0);
  const starts = columns.atMs.flatMap((_, index) =>
    index >= first && (index - first) % joined === 0 && index + joined <= columns.atMs.length ? [index] : [],
  );
  const sumAt = (values: readonly number[], from: number): number =>
    values.slice(from, from + joined).reduce((sum, value) => sum + value, 0);
  const counts = Object.fromEntries([
    ['atMs', starts.map((from) => columns.atMs[from]!)],
    ...summed.map((name) => [name, starts.map((from) => sumAt(columns[name], from))] as const),
  ]) as unknown as Counts;
  return { counts, stepMs: wideMs };
}

/** A gap after the page slept or the host restarted; the page fills it with a new request. */
export const hasGap = ({ columns, stepMs }: HistoryAnswer, tick: TickEvent): boolean =>
  stepMs === 1000 && tick.atMs - (columns.atMs.at(-1) ?? -Infinity) > 5000;

/** The history one second later: with the seconds of the tick, without those older than the range. */
export function withTick(history: HistoryAnswer, tick: TickEvent): HistoryAnswer {
  const { columns, stepMs } = history;
  if (stepMs !== 1000 || hasGap(history, tick)) return history;
  const moved = emptyColumns();
  for (const name of columnNames) moved[name] = [...columns[name]];
  for (const second of [...tick.earlier, tick]) {
    // Seconds in between without counts are empty.
    for (let atMs = moved.atMs.at(-1)! + stepMs; atMs <= second.atMs; atMs += stepMs)
      for (const name of columnNames) moved[name].push(name === 'atMs' ? atMs : isLatency(name) ? null : 0);
    const place = moved.atMs.lastIndexOf(second.atMs);
    if (place >= 0) for (const name of columnNames) moved[name][place] = second[name];
  }
  const length = columns.atMs.length;
  for (const name of columnNames) moved[name] = moved[name].slice(-length);
  const next = moved as unknown as TrafficColumns;
  return {
    ...history,
    fromMs: next.atMs[0] ?? history.fromMs,
    toMs: Math.max(history.toMs, tick.atMs + stepMs),
    columns: next,
    totals: { ...totalsOf(next), p50Ms: history.totals.p50Ms, p99Ms: history.totals.p99Ms },
  };
}

const isLatency = (name: string): boolean => name === 'p50Ms' || name === 'p99Ms';

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

/** Share of ended calls that were within the SLO; null if none ended. */
export function goodputShare({
  in_slo,
  late,
  shed,
  failed,
}: Pick<TrafficTotals, 'in_slo' | 'late' | 'shed' | 'failed'>): number | null {
  const ended = in_slo + late + shed + failed;
  return ended === 0 ? null : in_slo / ended;
}

/** The columns between two instants; all of them without a zoom. */
export function zoomed(columns: TrafficColumns, zoom: readonly [number, number] | null): TrafficColumns {
  if (zoom === null) return columns;
  const kept = columns.atMs.map((atMs) => atMs >= zoom[0] && atMs <= zoom[1]);
  const next = emptyColumns();
  for (const name of columnNames) next[name] = columns[name].filter((_, index) => kept[index]);
  return next as unknown as TrafficColumns;
}
