import { useEffect, useState } from 'preact/hooks';
import type { AnatomyChoices } from '../../api-types.ts';
import { getJson, request } from '../api.ts';
import { textOf } from '../logic/form.ts';
import { formatMs, formatRate, formatShare } from '../logic/format.ts';
import {
  bestOf,
  compare,
  isCapacityReport,
  parseReport,
  provenance,
  type CapacityReport,
  type Comparison,
  type ReplayReport,
} from '../logic/reports.ts';
import { Plot } from '../plot.tsx';
import { answerOf, usePolled } from '../state.ts';
import { Capacity } from './capacity.tsx';
import { CopyButton, Field, Message } from './parts.tsx';

interface Runs {
  readonly arrivals: readonly string[];
  readonly traces: readonly string[];
  readonly runs: readonly {
    readonly id: string;
    readonly name: string;
    readonly state: 'waiting' | 'running' | 'done' | 'failed';
    readonly startedAtMs: number;
    readonly command: string;
    readonly reason: string | null;
  }[];
}

interface Shown {
  readonly id: string;
  readonly name: string;
  readonly report: ReplayReport;
}

const comparedMax = 4;
const colours = ['--cpu', '--late', '--good', '--remote'] as const;

/** Choose traffic, functions, machine and policy; run; lay reports side by side, those of the command line too. */
export function Replay({ run, theme }: { readonly run: string | undefined; readonly theme: string }) {
  const loaded = usePolled<Runs>('/api/replays', 2000);
  const [shown, setShown] = useState<readonly Shown[]>([]);
  const [said, setSaid] = useState<string | undefined>(undefined);
  const [capacity, setCapacity] = useState<{ readonly name: string; readonly report: CapacityReport } | undefined>();
  const runs = answerOf(loaded);

  /** A report of either kind. */
  const take = (id: string, name: string, text: string): void => {
    const json: unknown = text.startsWith('{') ? JSON.parse(text) : undefined;
    if (isCapacityReport(json)) setCapacity({ name, report: json });
    else show({ id, name, report: parseReport(text) });
    setSaid(undefined);
  };
  const show = (next: Shown): void =>
    setShown((before) => [...before.filter(({ id }) => id !== next.id), next].slice(-comparedMax));
  const open = async (id: string, name: string): Promise<void> => {
    try {
      take(id, name, JSON.stringify(await getJson<unknown>(`/api/replays/${encodeURIComponent(id)}`)));
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  const cancel = async (id: string): Promise<void> => {
    try {
      await request(`/api/replays/${encodeURIComponent(id)}`, { method: 'DELETE' });
      loaded.reload();
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  useEffect(() => {
    if (run !== undefined) void open(run, run);
  }, [run]);
  const openFiles = async (files: FileList | null): Promise<void> => {
    for (const file of files ?? []) {
      try {
        take(`file ${file.name}`, file.name, await file.text());
      } catch (error) {
        setSaid(`${file.name}: ${(error as Error).message}`);
      }
    }
  };

  return (
    <section aria-labelledby="replay-title">
      <h1 id="replay-title">Replay</h1>
      <p class="muted">
        What share of requests would meet its SLO, and how many GPUs would be enough? The scheduler that serves, on a
        virtual clock, with the costs of a machine.
      </p>
      <NewRun runs={runs} onStarted={loaded.reload} />
      {said !== undefined && <Message text={said} level="warning" />}
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      <section class="card" aria-labelledby="runs-title">
        <h2 id="runs-title">Reports</h2>
        <label>
          Open reports of the command line:{' '}
          <input type="file" multiple accept=".json" onChange={(event) => void openFiles(event.currentTarget.files)} />
        </label>
        {runs?.runs.length === 0 && shown.length === 0 && <p class="muted">None yet. Run one above.</p>}
        <ul class="runs">
          {runs?.runs.map(({ id, name, state, reason, command }) => (
            <li key={id} data-state={state}>
              {state === 'done' ? (
                <button
                  type="button"
                  aria-pressed={shown.some((each) => each.id === id)}
                  onClick={() => void open(id, name)}
                >
                  {name}
                </button>
              ) : (
                <strong>{name}</strong>
              )}{' '}
              <span class={state === 'failed' ? 'warning' : 'muted'}>{state === 'failed' ? reason : state}</span>{' '}
              {(state === 'waiting' || state === 'running') && (
                <button type="button" aria-label={`Cancel ${name}`} onClick={() => void cancel(id)}>
                  Cancel
                </button>
              )}
              {command !== '' && <code>{command}</code>}
            </li>
          ))}
        </ul>
      </section>
      {capacity !== undefined && <Capacity {...capacity} onClose={() => setCapacity(undefined)} />}
      {shown.length > 0 && (
        <Reports shown={shown} theme={theme} onClose={(id) => setShown(shown.filter((each) => each.id !== id))} />
      )}
    </section>
  );
}

function NewRun({ runs, onStarted }: { readonly runs: Runs | undefined; readonly onStarted: () => void }) {
  const choices = answerOf(usePolled<AnatomyChoices>('/api/anatomy', 2 ** 31 - 1));
  const [said, setSaid] = useState<string | undefined>(undefined);
  const [trace, setTrace] = useState('');
  const [kind, setKind] = useState('replay');
  const start = async (form: HTMLFormElement): Promise<void> => {
    const fields = new FormData(form);
    const entries = [...fields.keys()].flatMap((field) => {
      const text = textOf(fields, field);
      if (text === '') return [];
      return [[field, ['rate', 'requests', 'seed', 'hostsMax'].includes(field) ? Number(text) : text]];
    });
    try {
      await request('/api/replays', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(Object.fromEntries(entries)),
      });
      setSaid(undefined);
      onStarted();
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  return (
    <form
      class="card form grid"
      aria-label="New replay"
      onSubmit={(event) => {
        event.preventDefault();
        void start(event.currentTarget);
      }}
    >
      <Field label="Name">
        <input name="name" autocomplete="off" />
      </Field>
      <Field label="What to find">
        <select name="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="replay">the goodput</option>
          <option value="capacity">the size needed</option>
        </select>
      </Field>
      <Field label="Trace">
        <select name="trace" value={trace} onChange={(event) => setTrace(event.currentTarget.value)}>
          <option value="">generated arrivals</option>
          {runs?.traces.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      {trace === '' && (
        <Field label="Arrivals">
          <select name="arrivals">
            {(runs?.arrivals ?? ['poisson']).map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </Field>
      )}
      <Field label="Requests per second">
        <input name="rate" inputMode="decimal" defaultValue={trace === '' ? '100' : ''} />
      </Field>
      <Field label="Requests">
        <input name="requests" inputMode="numeric" defaultValue="10000" />
      </Field>
      <Field label="Functions by model">
        <input name="functions" defaultValue="bert-base=180" autocomplete="off" />
      </Field>
      {kind === 'replay' ? (
        <Field label="Machine">
          <select name="machine" defaultValue="p3.8xlarge">
            {(choices?.machines ?? ['p3.8xlarge']).map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </Field>
      ) : (
        <>
          <Field label="Machines, by commas">
            <input name="machine" defaultValue="p3.8xlarge" autocomplete="off" />
          </Field>
          <Field label="Goodput asked for">
            <input name="goodput" defaultValue="99%" autocomplete="off" />
          </Field>
          <Field label="Largest number of hosts">
            <input name="hostsMax" inputMode="numeric" defaultValue="8" />
          </Field>
        </>
      )}
      <Field label="Policy">
        <select name="policy">
          <option>best</option>
          <option>artifact</option>
        </select>
      </Field>
      <Field label="Mode of cold starts">
        <select name="plan">
          <option value="">the policy’s own</option>
          {['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave'].map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </Field>
      <Field label="SLO">
        <input name="slo" defaultValue="100ms" autocomplete="off" />
      </Field>
      <Field label="Seed">
        <input name="seed" inputMode="numeric" defaultValue="0" />
      </Field>
      <button type="submit" class="primary">
        Run
      </button>
      {said !== undefined && <Message text={said} level="warning" />}
    </form>
  );
}

interface ReportsProps {
  readonly shown: readonly Shown[];
  readonly theme: string;
  readonly onClose: (id: string) => void;
}

function Reports({ shown, theme, onClose }: ReportsProps) {
  const rows = compare(shown.map(({ report }) => report));
  return (
    <>
      <section class="card" aria-labelledby="compare-title">
        <h2 id="compare-title">{shown.length === 1 ? 'Report' : 'Side by side'}</h2>
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
          <ReportPlot key={figure} figure={figure} shown={shown} theme={theme} />
        ))}
      </div>
      {shown.map(({ id, name, report }) => (
        <details class="card" key={id}>
          <summary>{name}: models and settings</summary>
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  {['Model', 'Functions', 'Requests', 'Goodput', 'p99', 'Cold'].map((heading) => (
                    <th scope="col" key={heading}>
                      {heading}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
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
              </tbody>
            </table>
          </div>
          <pre>{JSON.stringify(report.settings, null, 1)}</pre>
          <CopyButton text={JSON.stringify(report, null, 1)} />
        </details>
      ))}
    </>
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

/** One figure of every report over the time of the run; from its beginning, in UTC, so that runs lie over each other. */
function ReportPlot({
  figure,
  shown,
  theme,
}: { readonly figure: keyof typeof figures } & Omit<ReportsProps, 'onClose'>) {
  const starts = [...new Set(shown.flatMap((each) => rowsOf(each).map(({ start_s }) => start_s)))].toSorted(
    (a, b) => a - b,
  );
  const offsetMs = new Date(0).getTimezoneOffset() * 60_000;
  const series = shown.map((each, index) => {
    const byStart = new Map(rowsOf(each).map((row) => [row.start_s, row[figure]]));
    return {
      label: each.name,
      colour: colours[index]!,
      look: 'line' as const,
      values: starts.map((start) => byStart.get(start) ?? null),
    };
  });
  const { title, format } = figures[figure];
  return (
    <Plot
      title={title}
      summary={shown.map(({ name }) => name).join(', ')}
      atMs={starts.map((start) => start * 1000 + offsetMs)}
      format={format}
      theme={theme}
      series={series}
    />
  );
}
