/** Reports of replays, one or several side by side: verdicts, figures, plots, models. */
import { formatMs, formatRate, formatShare } from '../logic/format.ts';
import { bestOf, compare, provenance, type Comparison, type ReplayReport } from '../logic/reports.ts';
import { line, Plot } from '../plot.tsx';
import { CopyButton, Table } from './parts.tsx';

export interface Shown {
  readonly id: string;
  readonly name: string;
  readonly report: ReplayReport;
}

/** One for each report side by side. */
export const colours = ['--cpu', '--late', '--good', '--remote'] as const;

interface ReportsProps {
  readonly shown: readonly Shown[];
  readonly onClose: (id: string) => void;
}

export function Reports({ shown, onClose }: ReportsProps) {
  const rows = compare(shown.map(({ report }) => report));
  return (
    <>
      <section class="card" aria-labelledby="compare-title">
        <h2 id="compare-title">{shown.length === 1 ? 'Report' : 'Side by side'}</h2>
        {shown.map(
          ({ id, name, report }) =>
            report.verdict !== undefined && (
              <p key={id}>
                <strong>{name}</strong> {report.warnings?.map((warning) => `Warning: ${warning} `)}
                {report.verdict}
              </p>
            ),
        )}
        <div class="scroll">
          <table class="compare">
            <thead>
              <tr>
                <th scope="col" />
                {shown.map(({ id, name, report }) => (
                  <th scope="col" key={id}>
                    {name} <span class="muted">{provenance(report)}</span>{' '}
                    <button type="button" aria-label={`Close ${name}`} onClick={() => onClose(id)}>
                      ×
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              <tr>
                <th scope="row">Requests</th>
                {shown.map(({ id, report }) => (
                  <td key={id}>
                    {report.requests.toLocaleString('en')} at {formatRate(report.requests_per_s)}
                  </td>
                ))}
              </tr>
              {rows.map((row) => (
                <tr key={row.name}>
                  <th scope="row">{row.name}</th>
                  {row.values.map((value, index) => (
                    <td key={shown[index]!.id} class={bestOf(row) === index ? 'best' : ''}>
                      {shownValue(row, value)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
      <div class="plots">
        {(['p99_ms', 'goodput', 'cold_start_rate'] as const).map((figure) => (
          <ReportPlot key={figure} figure={figure} shown={shown} />
        ))}
      </div>
      {shown.map(({ id, name, report }) => (
        <Models key={id} name={name} report={report} />
      ))}
    </>
  );
}

function Models({ name, report }: Omit<Shown, 'id'>) {
  return (
    <details class="card">
      <summary>{name}: models and settings</summary>
      <div class="scroll">
        <Table headings={['Model', 'Functions', 'Requests', 'Goodput', 'p99', 'Cold']}>
          {report.models.map((model) => (
            <tr key={model.model}>
              <th scope="row">{model.model}</th>
              <td>{model.functions}</td>
              <td>{model.requests}</td>
              <td>{formatShare(model.goodput)}</td>
              <td>{formatMs(model.p99_ms)}</td>
              <td>{formatShare(model.cold_start_rate)}</td>
            </tr>
          ))}
        </Table>
      </div>
      <pre>{JSON.stringify(report.settings, null, 1)}</pre>
      <CopyButton text={JSON.stringify(report, null, 1)} />
    </details>
  );
}

function shownValue({ unit }: Comparison, value: number | null): string {
  if (value === null) return '–';
  switch (unit) {
    case 'share':
      return formatShare(value);
    case 'ms':
      return formatMs(value);
    case 'rate':
      return formatRate(value);
    case 'count':
      return value.toLocaleString('en');
  }
}

const rowsOf = ({ report }: Shown) => (report.timeline.length > 0 ? report.timeline : report.per_minute);

const figures = {
  p99_ms: { title: 'p99 over the run', format: (value: number) => formatMs(value) },
  goodput: { title: 'Goodput over the run', format: (value: number) => formatShare(value) },
  cold_start_rate: { title: 'Cold-start rate over the run', format: (value: number) => formatShare(value) },
} as const;

/** One figure of every report over the time of the run; all runs start at 0. */
function ReportPlot({ figure, shown }: { readonly figure: keyof typeof figures } & Pick<ReportsProps, 'shown'>) {
  const starts = [...new Set(shown.flatMap((each) => rowsOf(each).map(({ start_s }) => start_s)))].toSorted(
    (a, b) => a - b,
  );
  const offsetMs = new Date(0).getTimezoneOffset() * 60_000;
  const series = shown.map((each, index) => {
    const byStart = new Map(rowsOf(each).map((row) => [row.start_s, row[figure]]));
    const values = starts.map((start) => byStart.get(start) ?? null);
    return line(each.name, colours[index]!, values);
  });
  const { title, format } = figures[figure];
  return (
    <Plot
      title={title}
      summary={shown.map(({ name }) => name).join(', ')}
      atMs={starts.map((start) => start * 1000 + offsetMs)}
      format={format}
      series={series}
    />
  );
}
