/** Reports as CSV (RFC 4180): one row for the whole, each GPU, model, minute and function, all under one heading. */
import type { Report, SweepReport, Tally } from './types.ts';

const tallyColumns = [
  'requests',
  'p50_ms',
  'p95_ms',
  'p99_ms',
  'p999_ms',
  'mean_ms',
  'max_ms',
  'goodput',
  'cold_starts',
  'cold_start_rate',
  'partial_starts',
  'partial_start_rate',
  'shed',
  'offloaded',
  'workers',
  'failed',
  'evictions',
] as const satisfies readonly (keyof Tally)[];

type Cell = string | number | null | undefined;

function line(cells: readonly Cell[]): string {
  return cells
    .map((cell) => {
      const text = cell === null || cell === undefined ? '' : String(cell);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    })
    .join(',');
}

const tallyCells = (row: Partial<Record<keyof Tally, number | null>>): Cell[] =>
  tallyColumns.map((column) => row[column]);

const mean = (shares: readonly number[]): number | undefined =>
  shares.length === 0 ? undefined : shares.reduce((sum, each) => sum + each, 0) / shares.length;

/**
 * `scope` is total, gpu, model, interval or function; `name` says which; `how`, of which report; an interval also has
 * its start.
 */
export function renderReportCsv(...reports: readonly Report[]): string {
  const heading = line(['scope', 'name', 'how', 'start_s', 'requests_per_s', 'utilisation', ...tallyColumns]);
  return `${[heading, ...reports.flatMap(reportLines)].join('\n')}\n`;
}

function reportLines(report: Report): string[] {
  const how = report.simulated === true ? 'simulated' : 'measured';
  const lines: string[] = [];
  const utilisation = mean(report.gpus.map((gpu) => gpu.utilisation));
  lines.push(line(['total', '', how, 0, report.requests_per_s, utilisation, ...tallyCells(report)]));
  for (const gpu of report.gpus) {
    lines.push(line(['gpu', gpu.gpu, how, '', '', gpu.utilisation, ...tallyCells(gpu)]));
  }
  for (const row of report.models) lines.push(line(['model', row.model, how, '', '', '', ...tallyCells(row)]));
  for (const [index, row] of report.per_minute.entries()) {
    const cells = [row.start_s, row.requests_per_s, mean(row.utilisation), ...tallyCells(row)];
    lines.push(line(['interval', index, how, ...cells]));
  }
  for (const row of report.functions) lines.push(line(['function', row.function, how, '', '', '', ...tallyCells(row)]));
  return lines;
}

/** A row for each run. */
export function renderSweepCsv(sweep: SweepReport): string {
  const lines = [line(['instances', 'plan', 'policy', 'how', ...tallyColumns])];
  for (const { instances, plan, policy, report } of sweep.runs) {
    lines.push(line([instances, plan, policy, 'simulated', ...tallyCells(report)]));
  }
  return `${lines.join('\n')}\n`;
}
