/** A sweep: one load, replayed over the values of an option, on one or several systems. */
import { append, formatMs } from '../tools/index.ts';
import { percent } from './tables.ts';
import type { Report, ReportSummary, SweepReport, SweepRun } from './types.ts';
import { goodputWanted } from './verdict.ts';

export function summaryOf(report: Report): ReportSummary {
  const { functions: _functions, timeline: _timeline, per_minute: _perMinute, latency_cdf: _cdf, ...summary } = report;
  return summary;
}

/** The runs of each system, in the order of the sweep. */
export function systemsOf(runs: readonly SweepRun[]): { readonly name: string; readonly runs: readonly SweepRun[] }[] {
  const systems = new Map<string, SweepRun[]>();
  for (const run of runs) append(systems, run.system, run);
  return Array.from(systems, ([name, own]) => ({ name, runs: own }));
}

/** Where objectives differ, no latency says whether they are met. */
export const isLate = (
  { p99_ms: p99, goodput }: Pick<Report, 'p99_ms' | 'goodput'>,
  { slo_ms: sloMs }: Pick<SweepReport, 'slo_ms'>,
): boolean => (sloMs === null ? goodput !== null && goodput < goodputWanted : p99 !== null && p99 > sloMs);

/** A sentence that says from which value on each system misses the SLO. */
export function sweepVerdict(sweep: Pick<SweepReport, 'slo_ms' | 'over' | 'runs'>): string {
  const { slo_ms: sloMs, over, runs } = sweep;
  const what =
    sloMs === null ? `Goodput is under ${percent(goodputWanted)}` : `p99 is over the SLO of ${formatMs(sloMs)}`;
  const where = systemsOf(runs).map(({ name, runs: own }) => {
    const late = own.filter(({ report }) => isLate(report, sweep)).map(({ at }) => at);
    const [first] = late;
    if (first === undefined) return `nowhere with ${name}`;
    // If all larger numbers are late too, the first one says it.
    const isFrom = typeof first === 'number' && late.length === own.length - own.findIndex(({ at }) => at === first);
    return isFrom ? `from ${over} ${first} on with ${name}` : `at ${over} ${late.join(', ')} with ${name}`;
  });
  return `${what} ${where.join(', ')}.`;
}
