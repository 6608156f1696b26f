/** Reports as text for the terminal. Pure. */
import {
  count,
  figures,
  isLate,
  ms,
  notesOf,
  percent,
  provenanceText,
  seedsTable,
  systemsOf,
  tablesOf,
  tallyCells,
  tallyColumns,
  type Comparison,
  type Figure,
  type Report,
  type SweepReport,
} from '../../report/index.ts';
import { formatMs } from '../../tools/index.ts';
import { renderTable } from '../table.ts';

const minutesShown = 15;
const functionsShown = 5;

export function renderReport(report: Report): string {
  const tables = tablesOf(report, functionsShown).map(({ columns, rows }) => renderTable(columns, rows));
  return [heading(report), ...tables, ...minutesOf(report), ...notesOf(report)].join('\n\n');
}

/** @param of the report, where there are several */
export const warningLines = ({ warnings = [] }: Pick<Report, 'warnings'>, of = 'warning'): string[] =>
  warnings.map((warning) => `${of}: ${warning}`);

function minutesOf({ per_minute: minutes }: Report): string[] {
  if (minutes.length < 2) return [];
  const rows = minutes
    .slice(0, minutesShown)
    .map((row) => [String(row.start_s / 60), row.requests_per_s.toFixed(1)].concat(tallyCells(row)));
  const table = renderTable(['>MINUTE', '>OFFERED/S', ...tallyColumns], rows);
  const more = minutes.length - minutesShown;
  return more > 0 ? [table, `(${more} more in --json, --csv and --html)`] : [table];
}

function heading(report: Report): string {
  const { settings, requests, requests_per_s: rate, duration_s: seconds } = report;
  const named = ['plan', 'policy', 'slo_ms', 'slo'].filter(
    (key) => settings[key] !== undefined && settings[key] !== null,
  );
  const settingsText = named.map((key) =>
    key === 'slo_ms' ? `SLO ${String(settings[key])} ms` : `${key === 'slo' ? 'SLO' : key} ${String(settings[key])}`,
  );
  const seed = report.seed === null ? [] : [`seed ${report.seed}`];
  const warmup = report.warmup_requests > 0 ? [`${count(report.warmup_requests)} of warm-up left out`] : [];
  return (
    `${provenanceText(report)}: ${count(requests)} requests in ${formatMs(seconds * 1000)} (${rate.toFixed(1)}/s)\n` +
    [...settingsText, ...seed, ...warmup].join(', ') +
    [...warningLines(report), ...(report.verdict === undefined ? [] : [report.verdict])]
      .map((line) => `\n${line}`)
      .join('')
  );
}

/** Reports side by side; from the second on with the difference to the first. */
export function renderComparison({ verdict, systems }: Comparison): string {
  const columns = ['', ...systems.map(({ name }) => `>${name}`)];
  const rows = figures.map(({ title, value, text, better }) => {
    const base = systems[0] === undefined ? null : value(systems[0].report);
    const cells = systems.map(({ report }, index) => {
      const own = value(report);
      return `${text(own)}${index === 0 ? '' : change(own, base, better)}`;
    });
    return [title].concat(cells);
  });
  const how = ['', ...systems.map(({ report }) => (report.simulated === true ? 'simulated' : 'measured'))];
  const machines = ['machine', ...systems.map(({ report }) => report.machine)];
  return [
    verdict,
    ...systems.flatMap(({ name, report }) => warningLines(report, name)),
    renderTable(columns, [how, machines, ...differing(systems), ...rows]),
    ...seedsTable(systems).map((table) => renderTable(table.columns, table.rows)),
  ].join('\n\n');
}

/** " (x0.53)": how often the first's value; a sign tells whether that is better. */
function change(own: number | null, base: number | null, better: Figure['better']): string {
  if (own === null || base === null || base === 0 || better === 'neither') return '';
  if (own === 0) return better === 'less' ? ' (+)' : ' (-)';
  const ratio = own / base;
  if (Math.abs(ratio - 1) < 0.0005) return ' (same)';
  const sign = ratio < 1 === (better === 'less') ? '+' : '-';
  return ` (${sign} x${ratio < 10 ? ratio.toFixed(2) : ratio.toFixed(0)})`;
}

/** The settings in which the reports are not alike. */
function differing(reports: Comparison['systems']): string[][] {
  const keys = new Set(reports.flatMap(({ report }) => Object.keys(report.settings)));
  const rows: string[][] = [];
  for (const key of keys) {
    const values = reports.map(({ report }) => {
      const value = report.settings[key];
      return value === undefined || value === null ? '-' : String(value);
    });
    if (new Set(values).size > 1) rows.push([key, ...values]);
  }
  return rows;
}

/** p99, goodput and cold starts by the option's value, a column for each system, and where each first misses the SLO. */
export function renderSweep(sweep: SweepReport): string {
  const systems = systemsOf(sweep.runs);
  const values = [...new Set(sweep.runs.map(({ at }) => at))];
  const columns = [`>${sweep.over.toUpperCase()}`, ...systems.map(({ name }) => `>${name.toUpperCase()}`)];
  const rows = values.map((at) => {
    const cells = systems.map(({ runs }) => {
      const run = runs.find((each) => each.at === at)?.report;
      if (run === undefined) return '-';
      const late = isLate(run, sweep) ? '!' : ' ';
      return `${ms(run.p99_ms)}${late} ${percent(run.goodput)} ${percent(run.cold_start_rate)}`;
    });
    return [typeof at === 'number' ? count(at) : at].concat(cells);
  });
  return [
    `${provenanceText(sweep)}: p99, goodput and cold starts by ${sweep.over}`,
    ...warningLines(sweep),
    renderTable(columns, rows),
    `${sweep.verdict} It is marked !.`,
  ].join('\n\n');
}
