/** A report as tables, sentences and figures, the same for the terminal and the page. */
import { formatBytes, formatMs } from '../tools/index.ts';
import type { Comparison, Report, Tally } from './types.ts';

/** A report under its name in a comparison. */
export interface NamedReport {
  readonly name: string;
  readonly report: Report;
}

export interface ReportTable {
  readonly title: string;
  /** Columns that begin with '>' are numbers, aligned right. */
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export const ms = (value: number | null | undefined): string =>
  value === null || value === undefined ? '-' : value === 0 ? '0 ms' : formatMs(value);
export const percent = (value: number | null): string => (value === null ? '-' : `${(value * 100).toFixed(1)}%`);
export const count = (value: number): string => value.toLocaleString('en-US');

/** Both shares in percent, with as many digits as tell them apart. */
export function percentsApart(one: number, other: number): readonly [string, string] {
  for (let digits = 1; ; digits++) {
    const texts = [one, other].map((share) => `${(share * 100).toFixed(digits)}%`) as [string, string];
    if (texts[0] !== texts[1] || one === other || digits === 4) return texts;
  }
}

/** How the figures were obtained, and on what. */
export function provenanceText({
  simulated,
  machine,
  settings,
}: Pick<Report, 'simulated' | 'machine' | 'settings'>): string {
  if (simulated === true && settings['offers'] === 'host') return `simulated with the GPUs and offers of ${machine}`;
  return simulated === true ? `simulated, machine preset ${machine}` : `measured on ${machine}`;
}

export interface Figure {
  readonly title: string;
  readonly value: (report: Report) => number | null;
  readonly text: (value: number | null) => string;
  readonly better: 'less' | 'more' | 'neither';
}

const number = (value: number | null): string => (value === null ? '-' : count(value));

/** The figures that comparisons compare, and that a page shows first. */
export const figures: readonly Figure[] = [
  { title: 'requests', value: ({ requests }) => requests, text: number, better: 'neither' },
  { title: 'p50', value: ({ p50_ms: p50 }) => p50, text: ms, better: 'less' },
  { title: 'p95', value: ({ p95_ms: p95 }) => p95, text: ms, better: 'less' },
  { title: 'p99', value: ({ p99_ms: p99 }) => p99, text: ms, better: 'less' },
  { title: 'p99.9', value: ({ p999_ms: p999 }) => p999, text: ms, better: 'less' },
  { title: 'longest', value: ({ max_ms: max }) => max ?? null, text: ms, better: 'less' },
  { title: 'waited, p99', value: (report) => report.queue_p99_ms ?? null, text: ms, better: 'less' },
  { title: 'goodput', value: ({ goodput }) => goodput, text: percent, better: 'more' },
  { title: 'cold starts', value: (report) => report.cold_start_rate, text: percent, better: 'less' },
  { title: 'partial starts', value: (report) => report.partial_start_rate, text: percent, better: 'neither' },
  { title: 'starts from disk', value: (report) => report.disk_start_rate ?? null, text: percent, better: 'less' },
  { title: 'evictions', value: ({ evictions }) => evictions, text: number, better: 'less' },
  {
    title: 'changes of plan',
    value: ({ plan_changes: changes }) => (changes === undefined ? null : changes.smaller + changes.larger),
    text: number,
    better: 'neither',
  },
  {
    title: 'changes of list',
    value: ({ list_changes: changes }) => changes?.done ?? null,
    text: number,
    better: 'neither',
  },
  { title: 'shed', value: ({ shed }) => shed, text: number, better: 'less' },
  { title: 'on CPU pools', value: ({ offloaded }) => offloaded, text: number, better: 'neither' },
  { title: 'failed', value: ({ failed }) => failed, text: number, better: 'less' },
];

const tallyFigures: readonly (readonly [column: string, text: (tally: Tally) => string])[] = [
  ['>REQUESTS', ({ requests }) => count(requests)],
  ['>GOODPUT', ({ goodput }) => percent(goodput)],
  ['>P50', (tally) => ms(tally.p50_ms)],
  ['>P95', (tally) => ms(tally.p95_ms)],
  ['>P99', (tally) => ms(tally.p99_ms)],
  ['>P99.9', (tally) => ms(tally.p999_ms)],
  ['>COLD', (tally) => percent(tally.cold_start_rate)],
  ['>PARTIAL', (tally) => percent(tally.partial_start_rate)],
  ['>EVICTIONS', ({ evictions }) => count(evictions)],
  ['>SHED', ({ shed }) => count(shed)],
  ['>CPU', ({ offloaded }) => count(offloaded)],
  ['>FAILED', ({ failed }) => count(failed)],
];
export const tallyColumns = tallyFigures.map(([column]) => column);
export const tallyCells = (tally: Tally): string[] => tallyFigures.map(([, text]) => text(tally));

/** Goodput and p99 with each seed, where there are several. */
export function seedsTable(systems: Comparison['systems']): ReportTable[] {
  if (systems.every(({ seeds }) => seeds.length < 2)) return [];
  const all = new Set(systems.flatMap(({ seeds }) => seeds.map(({ seed }) => seed)));
  const rows = [...all].map((seed) => {
    const own = systems.map(({ seeds }) => seeds.find((row) => row.seed === seed));
    const cells = own.map((row) => (row === undefined ? '-' : `${percent(row.goodput)}, ${ms(row.p99_ms)}`));
    return [String(seed)].concat(cells);
  });
  return [{ title: 'Goodput and p99 by seed', columns: ['>SEED', ...systems.map(({ name }) => `>${name}`)], rows }];
}

/** @param functionsMax how many functions are listed, those with the highest p99 first */
export function tablesOf(report: Report, functionsMax: number): ReportTable[] {
  const { models, gpus, functions, slos = [], predictions = [], fleet } = report;
  const ofModels = models.length > 1 ? models : [];
  const worst = functions.toSorted((a, b) => (b.p99_ms ?? 0) - (a.p99_ms ?? 0)).slice(0, functionsMax);
  const tables: ReportTable[] = [
    {
      title: 'All',
      columns: ['', ...tallyColumns],
      rows: [
        ['all', ...tallyCells(report)],
        ...ofModels.map((row) => [`${row.model} x ${row.functions}`].concat(tallyCells(row))),
      ],
    },
    {
      title: 'GPUs',
      columns: ['GPU', '>REQUESTS', '>EXECUTING', '>COLD STARTS', '>EVICTIONS'],
      // A fleet has hundreds; its hosts are listed instead.
      rows: (fleet === undefined ? gpus : []).map(({ gpu, requests, utilisation, cold_starts: cold, evictions }) => [
        `gpu${gpu}`,
        count(requests),
        percent(utilisation),
        count(cold),
        number(evictions),
      ]),
    },
    ...fleetTables(report),
    {
      title: 'Functions',
      columns: [functions.length > worst.length ? 'SLOWEST OF ALL' : 'FUNCTION', ...tallyColumns],
      rows: functions.length < 2 ? [] : worst.map((row) => [row.function].concat(tallyCells(row))),
    },
    {
      title: 'Objectives',
      columns: ['>SLO', '>REQUESTS', '>GOODPUT', '>SHED'],
      rows: slos.map((row) => [ms(row.slo_ms), count(row.requests), percent(row.goodput), count(row.shed)]),
    },
    {
      title: 'Predictions',
      columns: ['PREDICTED END', '>REQUESTS', '>MEAN ERROR', '>MEAN OF LATENCY', '>P90 OF LATENCY'],
      rows: predictions.map((row) => [
        row.placement,
        count(row.requests),
        ms(row.error_mean_ms),
        percent(row.error_mean_share),
        percent(row.error_p90_share),
      ]),
    },
  ];
  return tables.filter(({ rows }) => rows.length > 0);
}

function fleetTables({ fleet, duration_s: seconds, gpus }: Report): ReportTable[] {
  if (fleet === undefined) return [];
  const { hosts, router, passed, call_bytes: calls, content_bytes: content, imbalance, moves, failures } = fleet;
  const busyShare = (busyS: number, gpuCount = gpus.length / hosts): number | null =>
    seconds * gpuCount === 0 ? null : busyS / (seconds * gpuCount);
  return [
    {
      title: 'Fleet',
      columns: ['ROUTER', '>HOSTS', '>PASSED ON', '>CALLS', '>CONTENT', '>BUSIEST/MEAN', '>MOVES'],
      rows: [
        [
          router,
          count(hosts),
          percent(passed),
          formatBytes(calls),
          formatBytes(content),
          imbalance === null ? '-' : imbalance.toFixed(2),
          count(moves),
        ],
      ],
    },
    {
      title: 'Hosts',
      columns: ['HOST', '>REQUESTS', '>EXECUTING'],
      rows: fleet.per_host.map(({ host, machine, gpus: gpuCount, requests, busy_s: busyS }) => [
        machine === undefined ? `host${host}` : `host${host} (${machine})`,
        count(requests),
        percent(busyShare(busyS, gpuCount)),
      ]),
    },
    {
      title: 'Failures of hosts',
      columns: ['LOST', '>AT', '>BACK', '>GOODPUT BEFORE', '>MINUTE AFTER', '>FELT FOR', '>RUN ELSEWHERE', '>LOST'],
      rows: failures.map((failure) => [
        `host${failure.host}`,
        `${failure.at_s} s`,
        failure.back_s === null ? '-' : `${failure.back_s} s`,
        percent(failure.goodput_before),
        percent(failure.goodput_after),
        `${failure.felt_s} s`,
        count(failure.rerun),
        count(failure.lost),
      ]),
    },
  ];
}

/** A prediction that is off by more than this is a bug to explain. */
const predictionErrorMax = 0.1;

/** Sentences beside the tables. */
export function notesOf(report: Report): string[] {
  const { predictions = [], workers = 0, plan_changes: { smaller, larger } = { smaller: 0, larger: 0 } } = report;
  const notes: string[] = [];
  const off = predictions.filter((row) => (row.error_mean_share ?? 0) > predictionErrorMax);
  if (off.length > 0) {
    const named = off.map((row) => `${row.placement} by ${percent(row.error_mean_share)}`);
    notes.push(`the scheduler's predictions are off by more than ${percent(predictionErrorMax)}: ${named.join(', ')}`);
  }
  notes.push(...hostMemoryNotes(report));
  if (workers > 0) notes.push(`answered by workers: ${count(workers)}`);
  for (const [title, counts] of [
    ['evictions by cause', report.evictions_by_cause],
    ['failures by reason', report.failures_by_reason],
  ] as const) {
    const entries = Object.entries(counts).map(([name, each]) => `${name} ${count(each)}`);
    if (entries.length > 0) notes.push(`${title}: ${entries.join(', ')}`);
  }
  if (smaller + larger > 0) {
    notes.push(
      `functions on GPUs changed to a smaller plan ${count(smaller)} times, to a larger one ${count(larger)} times`,
    );
  }
  if (report.list_changes !== undefined) {
    const { done, refused } = report.list_changes;
    const text = `functions on the CPU changed their list of instances ${count(done)} times`;
    notes.push(refused === 0 ? text : `${text}; ${count(refused)} changes found too few cores or too little memory`);
  }
  const delayMs = report.settings['send_delay_p99_ms'];
  if (typeof delayMs === 'number') {
    notes.push(
      `requests left this client ${ms(delayMs)} late at the 99th percentile; latency counts from when they were due`,
    );
  }
  return notes;
}

function hostMemoryNotes({ host_memory: memory, disk_starts: waited = 0 }: Report): string[] {
  if (memory === undefined) return [];
  const { capacity_bytes: capacity, functions_bytes: bytes, disk_capacity_bytes: disk, disk_reads: reads } = memory;
  if (!memory.exceeded && reads === 0) return [];
  const over = disk !== null && bytes > disk ? `, the disk ${formatBytes(disk)}` : '';
  const sizes = `the functions have ${formatBytes(bytes)} of weights, host memory holds ${formatBytes(capacity)}${over}`;
  const read =
    `${count(reads)} reads from disk, ${formatBytes(memory.disk_read_bytes)}, that ${count(waited)} calls waited for; ` +
    `${count(memory.evictions)} evictions from there`;
  const { filled_functions: filled } = memory;
  return [
    `${memory.exceeded ? 'host memory is exceeded: ' : ''}${sizes}${reads + memory.evictions > 0 ? `: ${read}` : ''}`,
    ...(filled === undefined
      ? []
      : [
          filled === 0
            ? 'host memory began empty'
            : `host memory began with the ${count(filled)} functions that the warm-up calls most for their bytes, and the first`,
        ]),
  ];
}
