/** Reports as one self-contained page: figures, plots in the manner of the papers, tables. */
import { escapeHtml, formatValue, renderChart, type Chart, type ChartSeries } from './chart.ts';
import { renderHtmlTable, renderLegend, renderPage } from './page.ts';
import type { IntervalRow, Report, SweepReport, SweepRun, Tally } from './types.ts';

/** A report under the name that a comparison knows it by. */
export interface NamedReport {
  readonly name: string;
  readonly report: Report;
}

/** A page lists so many functions; all of them are in the JSON and the CSV. */
const functionsMax = 100;

/** How the figures came about, and on what. */
export function provenanceText({
  simulated,
  machine,
  settings,
}: Pick<Report, 'simulated' | 'machine' | 'settings'>): string {
  if (simulated === true && settings['offers'] === 'host') return `simulated with the GPUs and offers of ${machine}`;
  return simulated === true ? `simulated, machine preset ${machine}` : `measured on ${machine}`;
}

/** Sentences about the reports, under a heading of their own. */
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
    body.push(`<p class="lead"><span class="badge">${escapeHtml(provenanceText(only.report))}</span></p>`);
    body.push(figuresOf(only.report));
  } else {
    body.push('<h2>Figures</h2>', comparisonTable(reports));
  }
  if (notes !== undefined) {
    const items = notes.lines.map((line) => `<li>${escapeHtml(line)}</li>`);
    body.push(`<h2>${escapeHtml(notes.title)}</h2>`, `<ul>${items.join('\n')}</ul>`);
  }
  body.push('<h2>Over time</h2>', renderLegend(names), chartsOverTime(reports));
  for (const { name, report } of reports) body.push(...detailsOf(report, reports.length > 1 ? ` of ${name}` : ''));
  return renderPage(title, body);
}

const ms = (value: number | null): string => (value === null ? '–' : formatValue(value, 'ms'));
const share = (value: number | null): string => (value === null ? '–' : formatValue(value, 'share'));
const count = (value: number): string => value.toLocaleString('en-US');

/** Heading and text of each figure, as all pages and the comparison show them. */
const figures: readonly (readonly [title: string, text: (report: Report) => string])[] = [
  ['p99 latency', ({ p99_ms: p99 }) => ms(p99)],
  ['Goodput', ({ goodput }) => share(goodput)],
  ['Cold starts', (report) => share(report.cold_start_rate)],
  ['Partial starts', (report) => share(report.partial_start_rate)],
  ['Requests', ({ requests }) => count(requests)],
  ['Offered', (report) => `${formatValue(report.requests_per_s, 'count')}/s`],
  ['p50 latency', ({ p50_ms: p50 }) => ms(p50)],
  ['p95 latency', ({ p95_ms: p95 }) => ms(p95)],
  ['p99.9 latency', ({ p999_ms: p999 }) => ms(p999)],
  ['Longest', ({ max_ms: max }) => ms(max)],
  ['Waited, p99', (report) => ms(report.queue_p99_ms)],
  ['Evictions', ({ evictions }) => count(evictions)],
  ['Shed', ({ shed }) => count(shed)],
  ['On CPU pools', ({ offloaded }) => count(offloaded)],
  ['Failed', ({ failed }) => count(failed)],
];

function figuresOf(report: Report): string {
  const items = figures.map(([title, text]) => `<div><dt>${title}</dt><dd>${escapeHtml(text(report))}</dd></div>`);
  return `<dl class="figures">${items.join('')}</dl>`;
}

function comparisonTable(reports: readonly NamedReport[]): string {
  const rows = [
    ['How', ...reports.map(({ report }) => provenanceText(report))],
    ...figures.map(([title, text]) => [title].concat(reports.map(({ report }) => text(report)))),
  ];
  return renderHtmlTable(['', ...reports.map(({ name }) => name)], rows);
}

function chartsOverTime(reports: readonly NamedReport[]): string {
  const sloMs = sloOf(reports.map(({ report }) => report));
  // Minutes say little of a run of two; those have a finer timeline.
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
  const rule = sloMs === undefined ? undefined : { y: sloMs, label: 'SLO' };
  const charts: Chart[] = [
    { title: 'Offered load', xLabel, yLabel: 'requests per second', series: series((row) => row.requests_per_s) },
    {
      title: sloMs === undefined ? '99% latency' : `99% latency (SLO ${formatValue(sloMs, 'ms')})`,
      xLabel,
      yLabel: 'milliseconds',
      unit: 'ms',
      series: series((row) => row.p99_ms),
      logWhenWide: true,
      ...(rule === undefined ? undefined : { rule }),
    },
    {
      title: 'Goodput',
      xLabel,
      yLabel: 'answered within SLO',
      unit: 'share',
      yMax: 1,
      series: series((row) => row.goodput),
    },
    {
      title: 'Cold starts',
      xLabel,
      yLabel: 'share of requests',
      unit: 'share',
      series: series((row) => row.cold_start_rate),
    },
  ];
  // A plot of next to nothing would only take the eye from the others.
  const any = (field: 'partial_starts' | 'evictions' | 'shed' | 'offloaded'): boolean =>
    reports.some(({ report }) => report[field] > report.requests / 1000);
  if (any('partial_starts')) {
    charts.push({
      title: 'Partial starts',
      xLabel,
      yLabel: 'share of requests',
      unit: 'share',
      series: series((row) => row.partial_start_rate),
    });
  }
  if (any('evictions')) {
    charts.push({ title: 'Evictions', xLabel, yLabel: 'evictions', series: series((row) => row.evictions) });
  }
  if (any('shed')) charts.push({ title: 'Shed', xLabel, yLabel: 'requests', series: series((row) => row.shed) });
  if (any('offloaded')) {
    charts.push({ title: 'On CPU pools', xLabel, yLabel: 'requests', series: series((row) => row.offloaded) });
  }
  if (reports.some(({ report }) => report.gpus.length > 0)) {
    charts.push({
      title: 'GPUs executing, mean',
      xLabel,
      yLabel: 'share of time',
      unit: 'share',
      yMax: 1,
      series: series(meanUtilisation),
    });
  }
  return `<div class="charts">${charts.map(renderChart).join('\n')}</div>`;
}

const meanUtilisation = ({ utilisation }: IntervalRow): number | null =>
  utilisation.length === 0 ? null : utilisation.reduce((sum, each) => sum + each, 0) / utilisation.length;

/** Without the last rows of which the replay covers less than a quarter: their rates would be noise. */
function covered(
  rows: readonly IntervalRow[],
  rowS: number,
  { requests_per_s: rate, requests }: Report,
): readonly IntervalRow[] {
  const lastArrivalS = rate === 0 ? 0 : requests / rate;
  const kept = rows.filter(({ start_s: startS }) => lastArrivalS - startS >= rowS / 4);
  return kept.length === 0 ? rows : kept;
}

/** The SLO, where all share one. */
function sloOf(reports: readonly Pick<Report, 'settings'>[]): number | undefined {
  const [first, ...rest] = reports.map(({ settings }) => settings['slo_ms']);
  return typeof first === 'number' && rest.every((each) => each === first) ? first : undefined;
}

const tallyTitles = [
  'requests',
  'p50',
  'p95',
  'p99',
  'p99.9',
  'goodput',
  'cold',
  'partial',
  'shed',
  'CPU',
  'failed',
  'evictions',
];

function tallyCells(tally: Tally): string[] {
  return [
    count(tally.requests),
    ms(tally.p50_ms),
    ms(tally.p95_ms),
    ms(tally.p99_ms),
    ms(tally.p999_ms),
    share(tally.goodput),
    share(tally.cold_start_rate),
    share(tally.partial_start_rate),
    count(tally.shed),
    count(tally.offloaded),
    count(tally.failed),
    count(tally.evictions),
  ];
}

function detailsOf(report: Report, of: string): string[] {
  const parts: string[] = [];
  if (report.gpus.length > 0) {
    const rows = report.gpus.map((gpu) => [
      `GPU ${gpu.gpu}`,
      count(gpu.requests),
      count(gpu.cold_starts),
      gpu.evictions === null ? '–' : count(gpu.evictions),
      share(gpu.utilisation),
    ]);
    parts.push(`<h2>GPUs${escapeHtml(of)}</h2>`);
    parts.push(renderHtmlTable(['', 'requests', 'cold starts', 'evictions', 'executing'], rows));
  }
  if (report.models.length > 0) {
    const rows = report.models.map((row) => [row.model, count(row.functions), ...tallyCells(row)]);
    parts.push(`<h2>Models${escapeHtml(of)}</h2>`, renderHtmlTable(['', 'functions', ...tallyTitles], rows));
  }
  for (const [title, counts] of [
    ['Evictions by cause', report.evictions_by_cause],
    ['Failures by reason', report.failures_by_reason],
  ] as const) {
    const entries = Object.entries(counts);
    if (entries.length === 0) continue;
    parts.push(`<h2>${title}${escapeHtml(of)}</h2>`);
    parts.push(
      renderHtmlTable(
        ['', 'count'],
        entries.map(([name, number]) => [name, count(number)]),
      ),
    );
  }
  const worst = report.functions.toSorted((a, b) => (b.p99_ms ?? 0) - (a.p99_ms ?? 0)).slice(0, functionsMax);
  const rows = worst.map((row) => [row.function, ...tallyCells(row)]);
  const which =
    report.functions.length > worst.length ? `The ${worst.length} functions with the highest p99` : 'Functions';
  parts.push(`<details><summary>${which}${escapeHtml(of)}</summary>`);
  parts.push(renderHtmlTable(['', ...tallyTitles], rows), '</details>');
  const settings = Object.entries({ seed: report.seed, ...report.settings, percentile_error: report.percentile_error });
  parts.push(`<details><summary>Settings${escapeHtml(of)}</summary>`);
  parts.push(
    renderHtmlTable(
      ['', ''],
      settings.map(([name, value]) => [name, String(value)]),
    ),
    '</details>',
  );
  return parts;
}

/** The system under test of a sweep's run: its plan, and its policy where the sweep has several. */
export function systemsOf({ runs }: SweepReport): { readonly name: string; readonly runs: SweepRun[] }[] {
  const policies = new Set(runs.map(({ policy }) => policy));
  const systems = new Map<string, SweepRun[]>();
  for (const run of runs) {
    const name = policies.size > 1 ? `${run.plan}, ${run.policy}` : run.plan;
    const known = systems.get(name);
    if (known === undefined) systems.set(name, [run]);
    else known.push(run);
  }
  return Array.from(systems, ([name, own]) => ({
    name,
    runs: own.toSorted((a, b) => a.instances - b.instances),
  }));
}

/** A sweep over the number of instances, as the papers plot it. */
export function renderSweepPage(sweep: SweepReport): string {
  const systems = systemsOf(sweep);
  const series = (value: (run: SweepRun['report']) => number | null): ChartSeries[] =>
    systems.map(({ name, runs }) => ({
      name,
      points: runs.map(({ instances, report }) => [instances, value(report)] as const),
    }));
  const xLabel = 'instances of models';
  const charts: Chart[] = [
    {
      title: `99% latency (SLO ${formatValue(sweep.slo_ms, 'ms')})`,
      xLabel,
      yLabel: 'milliseconds',
      unit: 'ms',
      marked: true,
      logWhenWide: true,
      series: series((run) => run.p99_ms),
      rule: { y: sweep.slo_ms, label: 'SLO' },
    },
    {
      title: 'Goodput',
      xLabel,
      yLabel: 'answered within SLO',
      unit: 'share',
      yMax: 1,
      marked: true,
      series: series((run) => run.goodput),
    },
    {
      title: 'Cold starts',
      xLabel,
      yLabel: 'share of requests',
      unit: 'share',
      marked: true,
      series: series((run) => run.cold_start_rate),
    },
    { title: 'Evictions', xLabel, yLabel: 'evictions', marked: true, series: series((run) => run.evictions) },
  ];
  const rows = systems.flatMap(({ name, runs }) =>
    runs.map(({ instances, report }) => [name, count(instances), ...tallyCells(report)]),
  );
  const settings = Object.entries({ seed: sweep.seed, ...sweep.settings });
  return renderPage('Sweep over instances', [
    '<h1>Sweep over instances</h1>',
    `<p class="lead"><span class="badge">${escapeHtml(provenanceText(sweep))}</span></p>`,
    renderLegend(
      systems.map(({ name }) => name),
      true,
    ),
    `<div class="charts">${charts.map(renderChart).join('\n')}</div>`,
    '<h2>Runs</h2>',
    renderHtmlTable(['', 'instances', ...tallyTitles], rows),
    '<details><summary>Settings</summary>',
    renderHtmlTable(
      ['', ''],
      settings.map(([name, value]) => [name, String(value)]),
    ),
    '</details>',
  ]);
}
