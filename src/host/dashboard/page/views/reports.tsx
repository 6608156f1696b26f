/** Reports of replays as `turntable replay --json` and `plan --json` write them: live, and in a file of `--html`. */
import type { ComponentChildren } from 'preact';
import {
  capacityColumns,
  capacityRows,
  figures as reportFigures,
  notesOf,
  provenanceText,
  seedsTable,
  systemsOf,
  tablesOf,
  tallyCells,
  tallyColumns,
  type CapacityReport,
  type Comparison,
  type IntervalRow,
  type NamedReport,
  type Report,
  type ReportTable,
  type SweepReport,
} from '../../../../report/index.ts';
import { formatMs, formatShare } from '../logic/format.ts';
import { bestOf, isFlat, isWide, shareWithin, shareRange, type SavedReport } from '../logic/reports.ts';
import { limit, line, Plot, type PlotSeries } from '../plot.tsx';
import { Plan } from './anatomy.tsx';
import { CopyButton, Message, Table } from './parts.tsx';

/** One for each report side by side; more begin again. */
const colours = ['--good', '--late', '--shed', '--cold', '--remote', '--muted'] as const;
const colourOf = (index: number): string => colours[index % colours.length]!;
/** The slowest are shown; the JSON has all. */
const functionsMax = 100;
/** A longer table is folded. */
const rowsOpenMax = 15;

/** Any report. */
export function Saved({ report }: { readonly report: SavedReport }) {
  switch (report.format) {
    case 'turntable-report':
      return <Reports reports={[{ name: report.machine, report }]} />;
    case 'turntable-comparison':
      return <Reports reports={report.systems} comparison={report} />;
    case 'turntable-sweep':
      return <Sweep sweep={report} />;
    case 'turntable-capacity':
      return <Capacity report={report} />;
    case 'turntable-plan':
      return <Plan plan={report} />;
  }
}

interface ReportsProps {
  readonly reports: readonly NamedReport[];
  /** The sentence on several. */
  readonly comparison?: Comparison | undefined;
  readonly onClose?: ((index: number) => void) | undefined;
}

/** One report, or several side by side. */
export function Reports({ reports, comparison, onClose }: ReportsProps) {
  const [only] = reports;
  const alone = reports.length === 1 ? only : undefined;
  return (
    <>
      <section class="card" aria-labelledby="compare-title">
        <h2 id="compare-title">{alone === undefined ? 'Side by side' : 'Report'}</h2>
        {comparison !== undefined && <p class="verdict">{comparison.verdict}</p>}
        {reports.map(({ name, report }) => (
          <Verdict key={name} name={alone === undefined ? name : undefined} report={report} />
        ))}
        <Figures reports={reports} onClose={onClose} />
        {seedsTable(comparison?.systems ?? []).map((table) => (
          <Rows key={table.title} {...table} />
        ))}
      </section>
      <div class="plots">
        <Distribution reports={reports} />
        <OverTime reports={reports} />
      </div>
      {reports.map(({ name, report }) => (
        <Details key={name} name={alone === undefined ? name : undefined} report={report} />
      ))}
    </>
  );
}

interface OfReport {
  /** Where there are several. */
  readonly name: string | undefined;
  readonly report: Report;
}

function Verdict({ name, report: { verdict, warnings = [] } }: OfReport) {
  return (
    <>
      {warnings.map((warning) => (
        <Message key={warning} text={`${name === undefined ? '' : `${name}: `}${warning}`} level="warning" />
      ))}
      {verdict !== undefined && (
        <p class={name === undefined ? 'verdict' : undefined}>
          {name !== undefined && <strong>{name} </strong>}
          {verdict}
        </p>
      )}
    </>
  );
}

function Figures({ reports, onClose }: Pick<ReportsProps, 'reports' | 'onClose'>) {
  return (
    <div class="scroll">
      <table class="compare">
        <thead>
          <tr>
            <th scope="col" />
            {reports.map(({ name, report }, index) => (
              <th scope="col" key={name}>
                {name} <span class="muted">{provenanceText(report)}</span>{' '}
                {onClose !== undefined && (
                  <button type="button" aria-label={`Close ${name}`} onClick={() => onClose(index)}>
                    ×
                  </button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {reportFigures.map(({ title, value, text, better }) => {
            const values = reports.map(({ report }) => value(report));
            const best = bestOf(values, better);
            return (
              <tr key={title}>
                <th scope="row">{title}</th>
                {values.map((each, index) => (
                  <td key={reports[index]!.name} class={best === index ? 'best' : ''}>
                    {text(each)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** A table as the terminal prints it. */
function Rows({ title, columns, rows }: ReportTable) {
  const headings = columns.map((column) => ({ name: column.replace(/^>/, ''), words: !column.startsWith('>') }));
  return (
    <div class="scroll">
      {title !== '' && <h3>{title}</h3>}
      <Table headings={headings} rows={rows.map((cells, key) => ({ key, cells }))} />
    </div>
  );
}

function Details({ name, report }: OfReport) {
  const of = name === undefined ? '' : `${name}: `;
  return (
    <details class="card" open={name === undefined}>
      <summary>{of}all figures</summary>
      {tablesOf(report, functionsMax).map((table) =>
        table.rows.length > rowsOpenMax ? (
          <details key={table.title}>
            <summary>{table.title}</summary>
            <Rows {...table} title="" />
          </details>
        ) : (
          <Rows key={table.title} {...table} />
        ),
      )}
      {notesOf(report).map((note) => (
        <p key={note}>{note}</p>
      ))}
      <Settings settings={{ seed: report.seed, ...report.settings, percentile_error: report.percentile_error }}>
        <CopyButton text={JSON.stringify(report, null, 1)} />
      </Settings>
    </details>
  );
}

function Settings({
  settings,
  children,
}: {
  readonly settings: Readonly<Record<string, unknown>>;
  readonly children?: ComponentChildren;
}) {
  return (
    <details>
      <summary>Settings</summary>
      <Rows
        title=""
        columns={['Setting', 'Value']}
        rows={Object.entries(settings).map(([setting, value]) => [setting, String(value)])}
      />
      {children}
    </details>
  );
}

/** The share of the answered requests within each latency. */
function Distribution({ reports }: Pick<ReportsProps, 'reports'>) {
  const known = reports.flatMap(({ name, report: { latency_cdf: cdf = [] } }, index) =>
    cdf.length === 0 ? [] : [{ name, cdf, colour: colourOf(index) }],
  );
  // A logarithmic axis has no 0.
  const values = [...new Set(known.flatMap(({ cdf }) => cdf.map(([, ms]) => Math.max(ms, 0.01))))].toSorted(
    (a, b) => a - b,
  );
  if (values.length < 2) return null;
  return (
    <Plot
      title="Latency: share of the answers within"
      summary={known.map(({ name }) => name).join(', ')}
      atMs={values}
      x={{ name: 'ms', format: formatMs, logarithmic: values.at(-1)! > values[0]! * 30 }}
      yRange={[0, 1]}
      format={(value) => formatShare(value)}
      series={known.map(({ name, cdf, colour }) =>
        line(
          name,
          colour,
          values.map((ms) => shareWithin(cdf, ms)),
        ),
      )}
    />
  );
}

const rowsOf = (report: Report): readonly IntervalRow[] => {
  const { timeline, seconds_per_step: stepS, per_minute: minutes, minutes_per_row: perRow } = report;
  const [rows, rowS] = timeline.length > 0 ? [timeline, stepS ?? 1] : [minutes, perRow * 60];
  // Without last rows that the replay covers by less than a quarter: their rates would be noise.
  const lastArrivalS = report.requests_per_s === 0 ? 0 : report.requests / report.requests_per_s;
  const kept = rows.filter(({ start_s: startS }) => lastArrivalS - startS >= rowS / 4);
  return kept.length === 0 ? rows : kept;
};

interface OverTimePlot {
  readonly title: string;
  readonly value: (row: IntervalRow) => number | null;
  readonly format: (value: number) => string;
  readonly isShare?: true;
}

const counted = (value: number): string => Number(value.toPrecision(4)).toLocaleString('en');

const overTime: readonly OverTimePlot[] = [
  { title: 'p99 over the run', value: (row) => row.p99_ms, format: formatMs },
  { title: 'Goodput over the run', value: (row) => row.goodput, format: formatShare, isShare: true },
  { title: 'Requests a second', value: (row) => row.requests_per_s, format: counted },
  { title: 'Cold starts', value: (row) => row.cold_start_rate, format: formatShare },
  { title: 'Partial starts', value: (row) => row.partial_start_rate, format: formatShare },
  { title: 'Starts from disk', value: (row) => row.disk_start_rate ?? null, format: formatShare },
  { title: 'Evictions', value: (row) => row.evictions, format: counted },
  { title: 'Shed', value: (row) => row.shed, format: counted },
  { title: 'On CPU pools', value: (row) => row.offloaded, format: counted },
  {
    title: 'GPUs executing, mean',
    value: ({ utilisation }) =>
      utilisation.length === 0 ? null : utilisation.reduce((sum, each) => sum + each, 0) / utilisation.length,
    format: formatShare,
  },
];

/** Figures of every report over the time of the run; all runs start at 0. A figure that never changes has no plot. */
function OverTime({ reports }: Pick<ReportsProps, 'reports'>) {
  const runs = reports.map(({ name, report }) => ({ name, rows: rowsOf(report), sloMs: report.settings['slo_ms'] }));
  const starts = [...new Set(runs.flatMap(({ rows }) => rows.map((row) => row.start_s)))].toSorted((a, b) => a - b);
  const [sloMs, ...otherSlos] = new Set(runs.map((run) => run.sloMs));
  const minutes = (starts.at(-1) ?? 0) > 600;
  return overTime.map(({ title, value, format, isShare }, at) => {
    const series = runs.map(({ name, rows }, index): PlotSeries => {
      const byStart = new Map(rows.map((row) => [row.start_s, value(row)]));
      return line(
        name,
        colourOf(index),
        starts.map((start) => byStart.get(start) ?? null),
      );
    });
    if (isFlat(series)) return null;
    const isLatency = at === 0;
    const rule =
      isLatency && typeof sloMs === 'number' && otherSlos.length === 0 ? [limit('SLO', '--failed', starts, sloMs)] : [];
    return (
      <Plot
        key={title}
        title={title}
        summary={runs.map(({ name }) => name).join(', ')}
        atMs={starts.map((start) => (minutes ? start / 60 : start))}
        x={{ name: minutes ? 'minutes' : 'seconds', format: counted }}
        {...(isShare === true && { yRange: shareRange(series) })}
        logarithmic={isLatency && isWide(series)}
        format={format}
        series={[...series, ...rule]}
      />
    );
  });
}

interface Curve {
  readonly name: string;
  readonly values: readonly (number | null)[];
}

/** A figure by the size or the option's value; words stand in their order. */
function ByValue({
  title,
  over,
  at,
  curves,
  rule,
  isShare = false,
}: {
  readonly title: string;
  readonly over: string;
  readonly at: readonly (number | string)[];
  readonly curves: readonly Curve[];
  readonly rule?: { readonly name: string; readonly value: number } | undefined;
  readonly isShare?: boolean;
}) {
  const isNumber = at.every((value) => typeof value === 'number');
  const xs = isNumber ? at : at.map((_, index) => index);
  const series = curves.map(({ name, values }, index) => line(name, colourOf(index), values));
  const format = isShare ? formatShare : formatMs;
  return (
    <Plot
      title={title}
      summary={curves.map(({ name }) => name).join(', ')}
      atMs={xs}
      x={{ name: over, format: (x) => (isNumber ? counted(x) : String(at[x] ?? '')), spansGaps: true }}
      {...(isShare && { yRange: shareRange(series, rule?.value) })}
      logarithmic={!isShare && isWide(series)}
      format={format}
      series={[...series, ...(rule === undefined ? [] : [limit(rule.name, '--failed', xs, rule.value)])]}
    />
  );
}

function Sweep({ sweep }: { readonly sweep: SweepReport }) {
  const { over, runs, slo_ms: sloMs, verdict, warnings = [], settings, seed } = sweep;
  const values = [...new Set(runs.map((run) => run.at))];
  const at = values.every((value) => typeof value === 'number') ? values.toSorted((a, b) => a - b) : values;
  const curves = (value: (report: SweepReport['runs'][number]['report']) => number | null): Curve[] =>
    systemsOf(runs).map(({ name, runs: own }) => {
      const byValue = new Map(own.map((run) => [run.at, value(run.report)]));
      return { name, values: at.map((each) => byValue.get(each) ?? null) };
    });
  const rows = runs.map(({ system, at: value, report }) => [system, String(value)].concat(tallyCells(report)));
  const common = { over, at };
  return (
    <>
      <section class="card" aria-labelledby="sweep-title">
        <h2 id="sweep-title">
          Sweep over {over} <span class="muted">{provenanceText(sweep)}</span>
        </h2>
        {warnings.map((warning) => (
          <Message key={warning} text={warning} level="warning" />
        ))}
        <p class="verdict">{verdict}</p>
      </section>
      <div class="plots">
        <ByValue
          {...common}
          title="p99"
          curves={curves((report) => report.p99_ms)}
          rule={sloMs === null ? undefined : { name: 'SLO', value: sloMs }}
        />
        <ByValue {...common} title="Goodput" isShare curves={curves((report) => report.goodput)} />
        <ByValue {...common} title="Cold starts" isShare curves={curves((report) => report.cold_start_rate)} />
      </div>
      <section class="card">
        <Rows title="Replays" columns={['SYSTEM', `>${over.toUpperCase()}`, ...tallyColumns]} rows={rows} />
        <Settings settings={{ seed, ...settings }} />
      </section>
    </>
  );
}

/** The answer to "how many GPUs": a sentence for each machine, and the replays behind it. */
function Capacity({ report }: { readonly report: CapacityReport }) {
  const { answers, goodput: goal, warnings = [], seed, settings } = report;
  const byGpus = answers.every(({ runs }) => runs.every(({ gpus }) => gpus > 0));
  const sizeOf = ({ gpus, cores, hosts }: CapacityReport['answers'][number]['runs'][number]): number =>
    byGpus ? gpus : cores * hosts;
  const at = [...new Set(answers.flatMap(({ runs }) => runs.map(sizeOf)))].toSorted((a, b) => a - b);
  const curves = (field: 'goodput' | 'p99_ms'): Curve[] =>
    answers.map(({ machine, runs }) => {
      const bySize = new Map(runs.map((run) => [sizeOf(run), run[field]]));
      return { name: machine, values: at.map((size) => bySize.get(size) ?? null) };
    });
  const common = { over: byGpus ? 'GPUs' : 'cores', at };
  return (
    <>
      <section class="card" aria-labelledby="capacity-title">
        <h2 id="capacity-title">
          Capacity <span class="muted">simulated</span>
        </h2>
        {warnings.map((warning) => (
          <Message key={warning} text={warning} level="warning" />
        ))}
        {answers.map(({ machine, text }) => (
          <p key={machine} class="verdict">
            {text}
          </p>
        ))}
      </section>
      <div class="plots">
        <ByValue
          {...common}
          title="Goodput"
          isShare
          curves={curves('goodput')}
          rule={{ name: 'asked for', value: goal }}
        />
        <ByValue {...common} title="p99" curves={curves('p99_ms')} />
      </div>
      <section class="card">
        <Rows title="Replays" columns={capacityColumns} rows={capacityRows(report)} />
        <Settings settings={{ seed, ...settings }} />
      </section>
    </>
  );
}
