/** What the page draws of reports. */
import type { CapacityReport, Comparison, Figure, Report, SweepReport } from '../../../../report/index.ts';
import type { PlanReport } from '../../api-types.ts';

/** Everything that the command line writes as JSON and the page shows. */
export type SavedReport = Report | Comparison | SweepReport | CapacityReport | PlanReport;

const formats: Readonly<Record<SavedReport['format'], true>> = {
  'turntable-report': true,
  'turntable-comparison': true,
  'turntable-sweep': true,
  'turntable-capacity': true,
  'turntable-plan': true,
};

/** @throws Error saying what the text is instead */
export function parseReport(text: string): SavedReport {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error('this file is not JSON; a report is what `turntable replay --json FILE` writes');
  }
  const { format, version } = (json ?? {}) as { readonly format?: unknown; readonly version?: unknown };
  if (typeof format !== 'string' || !Object.hasOwn(formats, format)) {
    throw new Error('this JSON is not a report of `turntable replay --json` or `plan capacity --json`');
  }
  if (format === 'turntable-sweep' && version !== 2) {
    throw new Error('this sweep is of an older Turntable; `turntable replay --over` makes it again');
  }
  return json as SavedReport;
}

/** Index of the best value; -1 if all are equal or unknown, or if none is better. */
export function bestOf(values: readonly (number | null)[], better: Figure['better']): number {
  const known = values.filter((value) => value !== null);
  if (better === 'neither' || new Set(known).size < 2) return -1;
  return values.indexOf(better === 'more' ? Math.max(...known) : Math.min(...known));
}

/** The share of a distribution within a latency, along straight lines between its points. */
export function shareWithin(cdf: NonNullable<Report['latency_cdf']>, ms: number): number {
  // Of several points with one latency, the last.
  const at = cdf.findLastIndex(([, each]) => each <= ms);
  const [below, above] = [cdf[at], cdf[at + 1]];
  if (below === undefined) return 0;
  if (above === undefined) return below[0];
  return below[0] + ((above[0] - below[0]) * (ms - below[1])) / (above[1] - below[1]);
}

interface Values {
  readonly values: readonly (number | null)[];
}

/** Whether the lines tell nothing that a figure would not: each is one value all the time. */
export const isFlat = (series: readonly Values[]): boolean =>
  series.every(({ values }) => new Set(values.filter((value) => value !== null)).size < 2);

/** Whether the values differ so much that only a logarithmic axis shows them all. */
export function isWide(series: readonly Values[]): boolean {
  const known = series.flatMap(({ values }) => values.filter((value) => value !== null));
  const least = Math.min(...known);
  return least > 0 && Math.max(...known) > 30 * least;
}

/** Of an axis of shares near 100%: from below the least, so that lines between 98% and 100% can be told apart. */
export function shareRange(series: readonly Values[], also = 1): readonly [number, number] {
  const known = series.flatMap(({ values }) => values.filter((value) => value !== null));
  const least = Math.min(also, ...known);
  const most = Math.max(also === 1 ? 0 : also, ...known);
  if (least < 0.8) return [0, Math.min(1, most * 1.08) || 1];
  return [Math.max(0, 1 - (1 - least) * 1.25 - 0.001), 1];
}
