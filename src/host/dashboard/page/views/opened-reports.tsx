import { useState } from 'preact/hooks';
import { comparisonOf } from '../../../../report/index.ts';
import { parseReport, type SavedReport } from '../logic/reports.ts';
import { Message } from './parts.tsx';
import { Reports, Saved } from './reports.tsx';

const shownMax = 6;

interface Shown {
  readonly name: string;
  readonly report: SavedReport;
}

/** Reports of the command line, read from files: replays stand side by side, reports of other kinds below each other. */
export function OpenedReports() {
  const [shown, setShown] = useState<readonly Shown[]>([]);
  const [said, setSaid] = useState<string | undefined>(undefined);
  const without = (reports: readonly Shown[], closed: string): Shown[] => reports.filter(({ name }) => name !== closed);
  const close = (closed: string): void => setShown((before) => without(before, closed));
  const open = async (files: FileList | null): Promise<void> => {
    setSaid(undefined);
    for (const file of files ?? []) {
      try {
        const next = { name: file.name, report: parseReport(await file.text()) };
        setShown((before) => [...without(before, file.name), next].slice(-shownMax));
      } catch (error) {
        setSaid(`${file.name}: ${(error as Error).message}`);
      }
    }
  };
  const replays = shown.flatMap(({ name, report }) => (report.format === 'turntable-report' ? [{ name, report }] : []));
  const comparison =
    replays.length > 1 ? comparisonOf(replays.map(({ name, report }) => ({ name, reports: [report] }))) : undefined;
  return (
    <section aria-labelledby="reports-title">
      <h1 id="reports-title">Reports</h1>
      <p class="muted">
        What share of requests would meet its SLO with another policy or machine, and how many GPUs would be enough?{' '}
        <code>turntable replay --json FILE</code> and <code>turntable plan capacity --json FILE</code> write the answers
        to files, which are shown here. The files stay in this browser.
      </p>
      <label class="card">
        Open reports:{' '}
        <input type="file" multiple accept=".json" onChange={(event) => void open(event.currentTarget.files)} />
      </label>
      {said !== undefined && <Message text={said} level="warning" />}
      {shown.map(
        ({ name, report }) =>
          report.format !== 'turntable-report' && (
            <section key={name} aria-label={name}>
              <div class="controls">
                <strong>{name}</strong>
                <button type="button" aria-label={`Close ${name}`} onClick={() => close(name)}>
                  ×
                </button>
              </div>
              <Saved report={report} />
            </section>
          ),
      )}
      {replays.length > 0 && (
        <Reports reports={replays} comparison={comparison} onClose={(index) => close(replays[index]!.name)} />
      )}
    </section>
  );
}
