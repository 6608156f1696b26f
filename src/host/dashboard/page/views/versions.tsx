import { useState } from 'preact/hooks';
import type { TrafficInfo, VersionInfo } from '../../../../client/index.ts';
import type { LogLine } from '../../../records/function-log.ts';
import { formatShare, formatTime } from '../logic/format.ts';
import { answerOf, usePolled } from '../state.ts';
import { Message, Table } from './parts.tsx';

/** `GET /functions/{name}/versions` */
interface VersionsAnswer {
  readonly versions: readonly VersionInfo[];
  readonly traffic: TrafficInfo;
}

/** The share of calls of each version, and how each does. */
export function Versions({ name, paused }: { readonly name: string; readonly paused: boolean }) {
  const path = `/functions/${encodeURIComponent(name)}/versions`;
  const answer = answerOf(usePolled<VersionsAnswer>(path, 5000, paused));
  if (answer === undefined) return null;
  const { versions, traffic } = answer;
  const { fell_back: fellBack } = traffic;
  return (
    <section class="card scroll" aria-labelledby="versions-title">
      <h2 id="versions-title">Versions</h2>
      {fellBack !== null && (
        <p class="warning">
          Version {fellBack.version} went out of service at {formatTime(Date.parse(fellBack.at))}: {fellBack.reason}
        </p>
      )}
      <Table
        headings={['Version', 'Share of calls', 'Within SLO', 'Missed', 'State']}
        rows={versions.map(({ version, state, percent, on_trial: onTrial, answers }) => {
          const ended = Object.values(answers).reduce((sum, count) => sum + count, 0);
          const good = answers['in_slo'] ?? 0;
          return {
            key: version,
            marks: { 'data-version': version },
            cells: [
              <>
                {version} {onTrial && <span class="tag">on trial</span>}
              </>,
              <>
                <span class="share" aria-hidden="true">
                  <i style={{ width: `${percent}%` }} />
                </span>{' '}
                {percent}%
              </>,
              ended === 0 ? '–' : formatShare(good / ended),
              (ended - good).toLocaleString('en'),
              state,
            ],
          };
        })}
      />
    </section>
  );
}

const linesShown = 60;

interface FunctionLogProps {
  readonly name: string;
  readonly calledAs: string;
  readonly paused: boolean;
}

/** The newest lines of a function's log, as in `turntable logs NAME`; loaded on request, since it may need a key. */
export function FunctionLog({ name, calledAs, paused }: FunctionLogProps) {
  const [isOpen, setOpen] = useState(false);
  const path = `/functions/${encodeURIComponent(name)}/log?lines=${linesShown}`;
  const loaded = usePolled<{ readonly lines: readonly LogLine[] }>(isOpen ? path : null, 5000, paused);
  const lines = answerOf(loaded)?.lines;
  return (
    <details class="card" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>Log</h2>{' '}
        <span class="muted">
          {calledAs} logs -f {name}
        </span>
      </summary>
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {lines?.length === 0 && <p class="muted">Nothing was logged of it since the host was started.</p>}
      {lines !== undefined && (
        <ol class="log">
          {lines.toReversed().map(({ seq, at, source, level, text }) => (
            <li key={seq} class={level === 'warn' || level === 'error' ? 'warning' : ''}>
              <time dateTime={at}>{formatTime(Date.parse(at))}</time> <span class="muted">{source}</span> {text}
            </li>
          ))}
        </ol>
      )}
    </details>
  );
}
