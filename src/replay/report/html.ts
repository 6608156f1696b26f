/** Reports as one self-contained page: figures, plots in the manner of the papers, tables. */
import { append } from '../../tools/index.ts';
import { escapeHtml, plots, renderChart, type Chart, type ChartSeries } from './chart.ts';
import { mean } from './csv.ts';
import { folded, renderHtmlTable, renderLegend, renderPage, renderWarnings, settingsOf } from './page.ts';
import {
  count,
  figures,
  notesOf,
  provenanceText,
  tablesOf,
  tallyCells,
  tallyColumns,
  type NamedReport,
} from './tables.ts';
import type { IntervalRow, Report, SweepReport, SweepRun } from './types.ts';

/** A page lists this many functions; the JSON and the CSV have all. */
const functionsMax = 100;

/** Sentences about the reports, under their own heading. */
export interface ReportNotes {
  readonly title: string;
  readonly lines: readonly string[];
}

/** One report, or several side by side. */
export function renderReportPage(reports: readonly NamedReport[], notes?: ReportNotes): string {
  const [only] = reports;
  const title =
    reports.length === 1 && only !== undefined ? `Replay: ${only.name}` : `${reports.length} replays side by side`;
  const names = reports.map(({ name }) => name);
  const body = [`<h1>${escapeHtml(title)}</h1>`];
  if (reports.length === 1 && only !== undefined) {
    body.push(
      `<p class="lead"><span class="badge">${escapeHtml(provenanceText(only.report))}</span></p>`,
      ...renderWarnings(only.report.warnings),
      verdictText(only.report),
    );
    body.push(figuresOf(only.report));
  } else {
    body.push(
      ...reports.flatMap(({ name, report }) => [...renderWarnings(report.warnings, name), verdictText(report, name)]),
      '<h2>Figures</h2>',
      comparisonTable(reports),
    );
  }
  if (notes !== undefined) {
    const items = notes.lines.map((line) => `<li>${escapeHtml(line)}</li>`);
    body.push(`<h2>${escapeHtml(notes.title)}</h2>`, `<ul>${items.join('\n')}</ul>`);
  }
  body.push('<h2>Over time</h2>', renderLegend(names), chartsOverTime(reports));
  for (const { name, report } of reports) body.push(...detailsOf(report, reports.length > 1 ? ` of ${name}` : ''));
  return renderPage(title, body);
}

function verdictText({ verdict }: Report, name?: string): string {
  if (verdict === undefined) return '';
  return `<p>${name === undefined ? '' : `<strong>${escapeHtml(name)}</strong> `}${escapeHtml(verdict)}</p>`;
}

function figuresOf(report: Report): string {
  const items = figures.map(
    ({ title, value, text }) => `<div><dt>${title}</dt><dd>${escapeHtml(text(value(report)))}</dd></div>`,
  );
  return `<dl class="figures">${items.join('')}</dl>`;
}

function comparisonTable(reports: readonly NamedReport[]): string {
  const rows = [
    ['How', ...reports.map(({ report }) => provenanceText(report))],
    ...figures.map(({ title, value, text }) => [title].concat(reports.map(({ report }) => text(value(report))))),
  ];
  return renderHtmlTable(['', ...reports.map(({ name }) => name)], rows);
}

function chartsOverTime(reports: readonly NamedReport[]): string {
  const sloMs = sloOf(reports.map(({ report }) => report));
  // Minutes are too coarse for a run of two minutes, which therefore has a finer timeline.
  const fine = reports.every(({ report }) => report.timeline.length > 0);
  const rowsOf = (report: Report): readonly IntervalRow[] =>
    fine
      ? covered(report.timeline, report.seconds_per_step ?? 1, report)
      : covered(report.per_minute, report.minutes_per_row * 60, report);
  const xLabel = fine ? 'seconds' : 'minutes';
  const series = (value: (row: IntervalRow) => number | null): ChartSeries[] =>
    reports.map(({ name, report }) => ({
      name: reports.length === 1 ? '' : name,
      points: rowsOf(report).map((row) => [fine ? row.start_s : row.start_s / 60, value(row)] as const),
    }));
  // A plot of almost nothing would only distract from the others.
  const any = (field: 'partial_starts' | 'evictions' | 'shed' | 'offloaded'): boolean =>
    reports.some(({ report }) => report[field] > report.requests / 1000);
  const hasGpus = reports.some(({ report }) => report.gpus.length > 0);
  type Plot = readonly [
    look: Omit<Chart, 'xLabel' | 'series'>,
    value: (row: IntervalRow) => number | null,
    on: boolean,
  ];
  const list: readonly Plot[] = [
    [{ title: 'Offered load', yLabel: 'requests per second' }, (row) => row.requests_per_s, true],
    [plots.latency(sloMs), (row) => row.p99_ms, true],
    [plots.goodput, (row) => row.goodput, true],
    [plots.coldStarts, (row) => row.cold_start_rate, true],
    [{ ...plots.coldStarts, title: 'Partial starts' }, (row) => row.partial_start_rate, any('partial_starts')],
    [plots.evictions, (row) => row.evictions, any('evictions')],
    [{ title: 'Shed', yLabel: 'requests' }, (row) => row.shed, any('shed')],
    [{ title: 'On CPU pools', yLabel: 'requests' }, (row) => row.offloaded, any('offloaded')],
    [
      { title: 'GPUs executing, mean', yLabel: 'share of time', unit: 'share', yMax: 1 },
      ({ utilisation }) => mean(utilisation) ?? null,
      hasGpus,
    ],
  ];
  const charts = list.flatMap(([look, value, on]): Chart[] => (on ? [{ ...look, xLabel, series: series(value) }] : []));
  return `<div class="charts">${charts.map(renderChart).join('\n')}</div>`;
}

/** Without last rows that the replay covers by less than a quarter: their rates would be noise. */
function covered(
  rows: readonly IntervalRow[],
  rowS: number,
  { requests_per_s: rate, requests }: Report,
): readonly IntervalRow[] {
  const lastArrivalS = rate === 0 ? 0 : requests / rate;
  const kept = rows.filter(({ start_s: startS }) => lastArrivalS - startS >= rowS / 4);
  return kept.length === 0 ? rows : kept;
}

/** The SLO, if all share one. */
function sloOf(reports: readonly Pick<Report, 'settings'>[]): number | undefined {
  const [first, ...rest] = reports.map(({ settings }) => settings['slo_ms']);
  return typeof first === 'number' && rest.every((each) => each === first) ? first : undefined;
}

/** Its tables and notes; long ones are folded. */
function detailsOf(report: Report, of: string): string[] {
  const parts = tablesOf(report, functionsMax).map(({ title, columns, rows }) => {
    const table = renderHtmlTable(columns, rows);
    return title === 'Functions' ? folded(title + of, table) : `<h2>${escapeHtml(title + of)}</h2>${table}`;
  });
  const notes = notesOf(report).map((note) => `<p>${escapeHtml(note)}</p>`);
  const settings = { seed: report.seed, ...report.settings, percentile_error: report.percentile_error };
  return [...parts, ...notes, settingsOf(settings, of)];
}

/** The system under test of a sweep's run: its plan, and its policy where the sweep has several. */
export function systemsOf({ runs }: SweepReport): { readonly name: string; readonly runs: SweepRun[] }[] {
  const policies = new Set(runs.map(({ policy }) => policy));
  const systems = new Map<string, SweepRun[]>();
  for (const run of runs) {
    append(systems, policies.size > 1 ? `${run.plan}, ${run.policy}` : run.plan, run);
  }
  return Array.from(systems, ([name, own]) => ({
    name,
    runs: own.toSorted((a, b) => a.instances - b.instances),
  }));
}

/** A sweep over the number of instances, plotted like in the papers. */
export function renderSweepPage(sweep: SweepReport): string {
  const systems = systemsOf(sweep);
  const { slo_ms: sloMs } = sweep;
  const series = (value: (run: SweepRun['report']) => number | null): ChartSeries[] =>
    systems.map(({ name, runs }) => ({
      name,
      points: runs.map(({ instances, report }) => [instances, value(report)] as const),
    }));
  const common = { xLabel: 'instances of models', marked: true };
  const charts: Chart[] = [
    { ...common, ...plots.latency(sloMs ?? undefined), series: series((run) => run.p99_ms) },
    { ...common, ...plots.goodput, series: series((run) => run.goodput) },
    { ...common, ...plots.coldStarts, series: series((run) => run.cold_start_rate) },
    { ...common, ...plots.evictions, series: series((run) => run.evictions) },
  ];
  const rows = systems.flatMap(({ name, runs }) =>
    runs.map(({ instances, report }) => [name, count(instances), ...tallyCells(report)]),
  );
  return renderPage('Sweep over instances', [
    '<h1>Sweep over instances</h1>',
    `<p class="lead"><span class="badge">${escapeHtml(provenanceText(sweep))}</span></p>`,
    ...renderWarnings(sweep.warnings),
    renderLegend(
      systems.map(({ name }) => name),
      true,
    ),
    `<div class="charts">${charts.map(renderChart).join('\n')}</div>`,
    '<h2>Runs</h2>',
    renderHtmlTable(['', 'INSTANCES', ...tallyColumns], rows),
    settingsOf({ seed: sweep.seed, ...sweep.settings }),
  ]);
}
