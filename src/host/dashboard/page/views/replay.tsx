import { useEffect, useState } from 'preact/hooks';
import type { AnatomyChoices, ReplaysAnswer } from '../../api-types.ts';
import { getJson, request } from '../api.ts';
import { textOf } from '../logic/form.ts';
import { comparisonOf } from '../../../../report/index.ts';
import { parseReport, type SavedReport } from '../logic/reports.ts';
import { answerOf, usePolled } from '../state.ts';
import { Field, Message, Options, TextField } from './parts.tsx';
import { Reports, Saved } from './reports.tsx';

const shownMax = 6;

interface Shown {
  readonly id: string;
  readonly name: string;
  readonly report: SavedReport;
}

const pathOf = (id: string): string => `/api/replays/${encodeURIComponent(id)}`;

/** Choose traffic, functions, machine and policy; run; compare reports, including those of the command line. */
export function Replay({ run }: { readonly run: string | undefined }) {
  const loaded = usePolled<ReplaysAnswer>('/api/replays', 2000);
  const [shown, setShown] = useState<readonly Shown[]>([]);
  const [said, setSaid] = useState<string | undefined>(undefined);
  const runs = answerOf(loaded);

  const take = (id: string, name: string, text: string): void => {
    const next = { id, name, report: parseReport(text) };
    setShown((before) => [...before.filter((each) => each.id !== id), next].slice(-shownMax));
    setSaid(undefined);
  };
  const close = (closed: string): void => setShown((before) => before.filter(({ id }) => id !== closed));
  const trying = async (act: () => Promise<void>, before = ''): Promise<void> => {
    try {
      await act();
    } catch (error) {
      setSaid(`${before}${(error as Error).message}`);
    }
  };
  const open = (id: string, name: string): Promise<void> =>
    trying(async () => take(id, name, JSON.stringify(await getJson<unknown>(pathOf(id)))));
  const cancel = (id: string): Promise<void> =>
    trying(async () => {
      await request(pathOf(id), { method: 'DELETE' });
      loaded.reload();
    });
  useEffect(() => {
    if (run !== undefined) void open(run, run);
  }, [run]);
  const openFiles = async (files: FileList | null): Promise<void> => {
    for (const file of files ?? []) {
      await trying(async () => take(`file ${file.name}`, file.name, await file.text()), `${file.name}: `);
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
        <RunList runs={runs?.runs ?? []} shown={shown} onOpen={open} onCancel={cancel} />
      </section>
      <Opened shown={shown} onClose={close} />
    </section>
  );
}

interface OpenedProps {
  readonly shown: readonly Shown[];
  readonly onClose: (id: string) => void;
}

/** Replays stand side by side; reports of other kinds below each other. */
function Opened({ shown, onClose }: OpenedProps) {
  const replays = shown.flatMap(({ id, name, report }) =>
    report.format === 'turntable-report' ? [{ id, name, report }] : [],
  );
  const comparison =
    replays.length > 1 ? comparisonOf(replays.map(({ name, report }) => ({ name, reports: [report] }))) : undefined;
  return (
    <>
      {shown.map(
        ({ id, name, report }) =>
          report.format !== 'turntable-report' && (
            <section key={id} aria-label={name}>
              <div class="controls">
                <strong>{name}</strong>
                <button type="button" aria-label={`Close ${name}`} onClick={() => onClose(id)}>
                  ×
                </button>
              </div>
              <Saved report={report} />
            </section>
          ),
      )}
      {replays.length > 0 && (
        <Reports reports={replays} comparison={comparison} onClose={(index) => onClose(replays[index]!.id)} />
      )}
    </>
  );
}

interface RunListProps {
  readonly runs: ReplaysAnswer['runs'];
  readonly shown: readonly Shown[];
  readonly onOpen: (id: string, name: string) => Promise<void>;
  readonly onCancel: (id: string) => Promise<void>;
}

function RunList({ runs, shown, onOpen, onCancel }: RunListProps) {
  return (
    <ul class="runs">
      {runs.map(({ id, name, state, reason, command }) => (
        <li key={id} data-state={state}>
          {state === 'done' ? (
            <button
              type="button"
              aria-pressed={shown.some((each) => each.id === id)}
              onClick={() => void onOpen(id, name)}
            >
              {name}
            </button>
          ) : (
            <strong>{name}</strong>
          )}{' '}
          <span class={state === 'failed' ? 'warning' : 'muted'}>{state === 'failed' ? reason : state}</span>{' '}
          {(state === 'waiting' || state === 'running') && (
            <button type="button" aria-label={`Cancel ${name}`} onClick={() => void onCancel(id)}>
              Cancel
            </button>
          )}
          {command !== '' && <code>{command}</code>}
        </li>
      ))}
    </ul>
  );
}

function NewRun({ runs, onStarted }: { readonly runs: ReplaysAnswer | undefined; readonly onStarted: () => void }) {
  const choices = answerOf(usePolled<AnatomyChoices>('/api/anatomy', 2 ** 31 - 1));
  const [said, setSaid] = useState<string | undefined>(undefined);
  const [trace, setTrace] = useState('');
  const [kind, setKind] = useState('replay');
  const start = async (form: HTMLFormElement): Promise<void> => {
    try {
      await request('/api/replays', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(askedBy(form)),
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
      <TextField label="Name" name="name" />
      <Field label="What to find">
        <select name="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="replay">the goodput</option>
          <option value="capacity">the size needed</option>
        </select>
      </Field>
      <Field label="Trace">
        <select name="trace" value={trace} onChange={(event) => setTrace(event.currentTarget.value)}>
          <option value="">generated arrivals</option>
          <Options of={runs?.traces ?? []} />
        </select>
      </Field>
      {trace === '' && (
        <Field label="Arrivals">
          <select name="arrivals">
            <Options of={runs?.arrivals ?? ['poisson']} />
          </select>
        </Field>
      )}
      <TextField label="Requests per second" name="rate" inputMode="decimal" defaultValue={trace === '' ? '100' : ''} />
      <TextField label="Requests" name="requests" inputMode="numeric" defaultValue="10000" />
      <TextField label="Functions by model" name="functions" defaultValue="bert-base=180" />
      {kind === 'replay' ? (
        <Field label="Machine">
          <select name="machine" defaultValue="p3.8xlarge">
            <Options of={choices?.machines ?? ['p3.8xlarge']} />
          </select>
        </Field>
      ) : (
        <CapacityFields />
      )}
      <Field label="Policy">
        <select name="policy">
          <Options of={['best', 'artifact', 'lru']} />
        </select>
      </Field>
      <Field label="Mode of cold starts">
        <select name="plan">
          <option value="">the policy’s own</option>
          <Options of={['baseline', 'pipeswitch', 'dha', 'pt', 'pt+dha', 'interleave']} />
        </select>
      </Field>
      <TextField label="SLO" name="slo" defaultValue="100ms" />
      <TextField label="Seed" name="seed" inputMode="numeric" defaultValue="0" />
      <button type="submit" class="primary">
        Run
      </button>
      {said !== undefined && <Message text={said} level="warning" />}
    </form>
  );
}

/** The values of the form, as the host takes them. */
function askedBy(form: HTMLFormElement): object {
  const fields = new FormData(form);
  const entries = [...fields.keys()].flatMap((field) => {
    const text = textOf(fields, field);
    if (text === '') return [];
    return [[field, ['rate', 'requests', 'seed', 'hostsMax'].includes(field) ? Number(text) : text]];
  });
  return Object.fromEntries(entries) as object;
}

function CapacityFields() {
  return (
    <>
      <TextField label="Machines, by commas" name="machine" defaultValue="p3.8xlarge" />
      <TextField label="Goodput asked for" name="goodput" defaultValue="99%" />
      <TextField label="Largest number of hosts" name="hostsMax" inputMode="numeric" defaultValue="8" />
    </>
  );
}
