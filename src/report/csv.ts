/** Reports as CSV (RFC 4180): one row for the whole, each GPU, model, minute and function, all under one header. */
import { isSameSize, type CapacityReport } from './capacity.ts';
import type { Comparison, Report, SweepReport, Tally } from './types.ts';

/** The fields of a tally, in the order of the columns. */
const tallyFields = [
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
  'disk_starts',
  'disk_start_rate',
  'shed',
  'offloaded',
  'workers',
  'failed',
  'evictions',
] as const satisfies readonly (keyof Tally)[];

type Cell = string | number | null | undefined;

/** A heading and rows. */
export const csvText = (rows: readonly (readonly Cell[])[]): string =>
  rows.map((row) => `${row.map(cellText).join(',')}\n`).join('');

function cellText(cell: Cell): string {
  const text = cell === null || cell === undefined ? '' : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const tallyCells = (row: Partial<Record<keyof Tally, number | null>>): Cell[] =>
  tallyFields.map((column) => row[column]);

const mean = (shares: readonly number[]): number | undefined =>
  shares.length === 0 ? undefined : shares.reduce((sum, each) => sum + each, 0) / shares.length;

/**
 * `scope` is total, gpu, model, interval or function; `name` says which; `how` tells measured or simulated; an interval
 * also has its start.
 */
export function renderReportCsv(report: Report): string {
  const heading = ['scope', 'name', 'how', 'start_s', 'requests_per_s', 'utilisation', ...tallyFields];
  return csvText([heading, ...reportRows(report)]);
}

function reportRows(report: Report): Cell[][] {
  const how = report.simulated === true ? 'simulated' : 'measured';
  const utilisation = mean(report.gpus.map((gpu) => gpu.utilisation));
  return [
    ['total', '', how, 0, report.requests_per_s, utilisation, ...tallyCells(report)],
    ...report.gpus.map((gpu) => ['gpu', gpu.gpu, how, '', '', gpu.utilisation, ...tallyCells(gpu)]),
    ...report.models.map((row) => ['model', row.model, how, '', '', '', ...tallyCells(row)]),
    ...report.per_minute.map((row, index) => {
      const of = [row.start_s, row.requests_per_s, mean(row.utilisation)];
      return ['interval', index, how, ...of, ...tallyCells(row)];
    }),
    ...report.functions.map((row) => ['function', row.function, how, '', '', '', ...tallyCells(row)]),
  ];
}

/** A row for each run. */
export function renderSweepCsv({ over, runs }: SweepReport): string {
  const rows = runs.map(({ at, system, report }) => [at, system, 'simulated', ...tallyCells(report)]);
  return csvText([[over, 'system', 'how', ...tallyFields], ...rows]);
}

/** A row for each system. */
export function renderComparisonCsv({ systems, winner }: Comparison): string {
  const rows = systems.map(({ name, report }) => {
    const how = report.simulated === true ? 'simulated' : 'measured';
    return [name, how, String(name === winner), ...tallyCells(report)];
  });
  return csvText([['system', 'how', 'winner', ...tallyFields], ...rows]);
}

const capacityFields = ['hosts', 'gpus', 'cores', 'goodput', 'p99_ms', 'cold_start_rate', 'utilisation'] as const;

/** A row for each replay of the search. */
export function renderCapacityCsv({ answers }: CapacityReport): string {
  const rows = answers.flatMap(({ machine, enough, runs }) =>
    runs.map((run) => [machine, ...capacityFields.map((field) => run[field]), String(isSameSize(enough, run))]),
  );
  return csvText([['machine', ...capacityFields, 'enough'], ...rows]);
}
