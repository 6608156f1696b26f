/** Reports as text for the terminal. Pure. */
import {
  provenanceText,
  systemsOf,
  type NamedReport,
  type Report,
  type SweepReport,
  type Tally,
} from '../../replay/index.ts';
import { formatMs } from '../format.ts';
import { renderTable, type Column } from '../table.ts';

const minutesShown = 15;
const functionsShown = 5;

const ms = (value: number | null | undefined): string =>
  value === null || value === undefined ? '-' : value === 0 ? '0 ms' : formatMs(value);
const percent = (value: number | null): string => (value === null ? '-' : `${(value * 100).toFixed(1)}%`);
const count = (value: number): string => value.toLocaleString('en-US');

const tallyColumns: readonly Column[] = [
  'REQUESTS',
  'GOODPUT',
  'P50',
  'P95',
  'P99',
  'P99.9',
  'COLD',
  'PARTIAL',
  'EVICTIONS',
  'SHED',
  'CPU',
  'FAILED',
].map((title) => ({ title, align: 'right' }));

function tallyCells(tally: Tally): string[] {
  return [
    count(tally.requests),
    percent(tally.goodput),
    ms(tally.p50_ms),
    ms(tally.p95_ms),
    ms(tally.p99_ms),
    ms(tally.p999_ms),
    percent(tally.cold_start_rate),
    percent(tally.partial_start_rate),
    count(tally.evictions),
    count(tally.shed),
    count(tally.offloaded),
    count(tally.failed),
  ];
}

export function renderReport(report: Report): string {
  const { settings } = report;
  const parts = [heading(report)];
  const whole = [{ title: '' }, ...tallyColumns];
  const models = report.models.length > 1 ? report.models : [];
  parts.push(
    renderTable(whole, [
      ['all', ...tallyCells(report)],
      ...models.map((row) => [`${row.model} x ${row.functions}`].concat(tallyCells(row))),
    ]),
  );
  if (report.gpus.length > 0) {
    const rows = report.gpus.map((gpu) => [
      `gpu${gpu.gpu}`,
      count(gpu.requests),
      percent(gpu.utilisation),
      count(gpu.cold_starts),
      gpu.evictions === null ? '-' : count(gpu.evictions),
    ]);
    const columns = ['REQUESTS', 'EXECUTING', 'COLD STARTS', 'EVICTIONS'].map((title): Column => ({
      title,
      align: 'right',
    }));
    parts.push(renderTable([{ title: 'GPU' }, ...columns], rows));
  }
  if (report.per_minute.length > 1) {
    const rows = report.per_minute
      .slice(0, minutesShown)
      .map((row) => [String(row.start_s / 60), row.requests_per_s.toFixed(1)].concat(tallyCells(row)));
    const columns: Column[] = [
      { title: 'MINUTE', align: 'right' },
      { title: 'OFFERED/S', align: 'right' },
      ...tallyColumns,
    ];
    parts.push(renderTable(columns, rows));
    if (report.per_minute.length > minutesShown) {
      parts.push(`(${report.per_minute.length - minutesShown} more in --json, --csv and --html)`);
    }
  }
  if (report.functions.length > 1) {
    const worst = report.functions.toSorted((a, b) => (b.p99_ms ?? 0) - (a.p99_ms ?? 0)).slice(0, functionsShown);
    const rows = worst.map((row) => [row.function].concat(tallyCells(row)));
    parts.push(renderTable([{ title: 'SLOWEST OF ALL' }, ...tallyColumns], rows));
  }
  for (const [title, counts] of [
    ['evictions by cause', report.evictions_by_cause],
    ['failures by reason', report.failures_by_reason],
  ] as const) {
    const entries = Object.entries(counts);
    if (entries.length > 0)
      parts.push(`${title}: ${entries.map(([name, number]) => `${name} ${count(number)}`).join(', ')}`);
  }
  const { smaller = 0, larger = 0 } = report.plan_changes ?? {};
  if (smaller + larger > 0) {
    parts.push(
      `functions on GPUs changed to a smaller plan ${count(smaller)} times, to a larger one ${count(larger)} times`,
    );
  }
  const delayMs = settings['send_delay_p99_ms'];
  if (typeof delayMs === 'number') {
    parts.push(
      `requests left this client ${ms(delayMs)} late at the 99th percentile; latency counts from when they were due`,
    );
  }
  return parts.join('\n\n');
}

function heading(report: Report): string {
  const { settings, requests, requests_per_s: rate, duration_s: seconds } = report;
  const named = ['plan', 'policy', 'slo_ms'].filter((key) => settings[key] !== undefined && settings[key] !== null);
  const settingsText = named.map((key) =>
    key === 'slo_ms' ? `SLO ${String(settings[key])} ms` : `${key} ${String(settings[key])}`,
  );
  const seed = report.seed === null ? [] : [`seed ${report.seed}`];
  const warmup = report.warmup_requests > 0 ? [`${count(report.warmup_requests)} of warm-up left out`] : [];
  return (
    `${provenanceText(report)}: ${count(requests)} requests in ${formatMs(seconds * 1000)} (${rate.toFixed(1)}/s)\n` +
    [...settingsText, ...seed, ...warmup].join(', ')
  );
}

/** Reports side by side; from the second on with the difference to the first. */
export function renderComparison(reports: readonly NamedReport[]): string {
  const [first] = reports;
  if (first === undefined) return '';
  const columns: Column[] = [{ title: '' }, ...reports.map(({ name }): Column => ({ title: name, align: 'right' }))];
  const rows = metrics.map(({ title, value, text, better }) => {
    const base = value(first.report);
    const cells = reports.map(({ report }, index) => {
      const own = value(report);
      return `${own === null ? '-' : text(own)}${index === 0 ? '' : change(own, base, better)}`;
    });
    return [title].concat(cells);
  });
  const how = ['', ...reports.map(({ report }) => (report.simulated === true ? 'simulated' : 'measured'))];
  const machines = ['machine', ...reports.map(({ report }) => report.machine)];
  const lines = [renderTable(columns, [how, machines, ...differing(reports), ...rows])];
  const loads = new Set(reports.map(({ report }) => report.requests));
  if (loads.size > 1) lines.push('The reports count different numbers of requests: they are not of one load.');
  return lines.join('\n\n');
}

interface Metric {
  readonly title: string;
  readonly value: (report: Report) => number | null;
  readonly text: (value: number) => string;
  readonly better: 'less' | 'more' | 'neither';
}

const metrics: readonly Metric[] = [
  { title: 'requests', value: ({ requests }) => requests, text: count, better: 'neither' },
  { title: 'p50', value: ({ p50_ms: p50 }) => p50, text: ms, better: 'less' },
  { title: 'p95', value: ({ p95_ms: p95 }) => p95, text: ms, better: 'less' },
  { title: 'p99', value: ({ p99_ms: p99 }) => p99, text: ms, better: 'less' },
  { title: 'p99.9', value: ({ p999_ms: p999 }) => p999, text: ms, better: 'less' },
  { title: 'goodput', value: ({ goodput }) => goodput, text: percent, better: 'more' },
  { title: 'cold starts', value: (report) => report.cold_start_rate, text: percent, better: 'less' },
  { title: 'partial starts', value: (report) => report.partial_start_rate, text: percent, better: 'neither' },
  { title: 'evictions', value: ({ evictions }) => evictions, text: count, better: 'less' },
  {
    title: 'changes of plan',
    value: ({ plan_changes: changes }) => (changes === undefined ? null : changes.smaller + changes.larger),
    text: count,
    better: 'neither',
  },
  { title: 'shed', value: ({ shed }) => shed, text: count, better: 'less' },
  { title: 'on CPU pools', value: ({ offloaded }) => offloaded, text: count, better: 'neither' },
  { title: 'failed', value: ({ failed }) => failed, text: count, better: 'less' },
];

/** " (x0.53)": how often the first's value; a sign tells whether that is better. */
function change(own: number | null, base: number | null, better: Metric['better']): string {
  if (own === null || base === null || base === 0 || better === 'neither') return '';
  const ratio = own / base;
  if (Math.abs(ratio - 1) < 0.0005) return ' (same)';
  const sign = ratio < 1 === (better === 'less') ? '+' : '-';
  return ` (${sign} x${ratio < 10 ? ratio.toFixed(2) : ratio.toFixed(0)})`;
}

/** The settings in which the reports are not alike. */
function differing(reports: readonly NamedReport[]): string[][] {
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

/** p99, goodput and cold starts by instances, a column for each system, and where each first misses the SLO. */
export function renderSweep(sweep: SweepReport): string {
  const systems = systemsOf(sweep);
  const instances = [...new Set(sweep.runs.map((run) => run.instances))].sort((a, b) => a - b);
  const columns: Column[] = [
    { title: 'INSTANCES', align: 'right' },
    ...systems.map(({ name }): Column => ({ title: name.toUpperCase(), align: 'right' })),
  ];
  const rows = instances.map((number) => {
    const cells = systems.map(({ runs }) => {
      const run = runs.find((each) => each.instances === number)?.report;
      if (run === undefined) return '-';
      const late = run.p99_ms !== null && run.p99_ms > sweep.slo_ms ? '!' : ' ';
      return `${ms(run.p99_ms)}${late} ${percent(run.goodput)} ${percent(run.cold_start_rate)}`;
    });
    return [count(number)].concat(cells);
  });
  const first = systems.map(({ name, runs }) => {
    const over = runs.find(({ report }) => report.p99_ms !== null && report.p99_ms > sweep.slo_ms);
    return `${name}: ${over === undefined ? 'never' : `from ${over.instances} on`}`;
  });
  return [
    `${provenanceText(sweep)}: p99, goodput and cold starts by number of functions`,
    renderTable(columns, rows),
    `p99 over the SLO of ${formatMs(sweep.slo_ms)} (marked !): ${first.join('; ')}`,
  ].join('\n\n');
}
