import type { FunctionAnswer } from '../../api-types.ts';
import { formatBytes, formatMs, formatRate, formatShare } from '../logic/format.ts';
import { latestOf } from '../logic/points.ts';
import { coarser } from '../logic/series.ts';
import { saidOnce } from '../logic/trouble.ts';
import { limit, line, Plot } from '../plot.tsx';
import { answerOf, useAction, usePolled } from '../state.ts';
import { Homes } from './fleet.tsx';
import { Events } from './events.tsx';
import { areas, outcomeLooks, type TimeProps } from './overview.tsx';
import { FunctionLog, Versions } from './versions.tsx';
import { CopyButton, Message, RangePicker, Tile } from './parts.tsx';
import { Missed } from './trouble.tsx';
import { TryIt } from './try-it.tsx';

const partLooks = [
  ['partQueue', 'Waits for a turn', '--late'],
  ['partLoad', 'Waits for the model', '--cold'],
  ['partHandler', 'Handler', '--remote'],
  ['partModel', 'Model', '--cpu'],
  ['partHost', 'Host', '--muted'],
] as const;
interface FunctionPageProps extends TimeProps {
  readonly name: string;
  readonly inFleet: boolean;
}

export function FunctionPage({ name, inFleet, ...time }: FunctionPageProps) {
  const { range, paused } = time;
  const path = `/api/functions/${encodeURIComponent(name)}?range=${range.id}`;
  const loaded = usePolled<FunctionAnswer>(path, 2000, paused);
  const answer = answerOf(loaded);
  if (answer === undefined) {
    return loaded.state === 'failed' ? <Message text={loaded.message} level="warning" /> : <Message text="Loading…" />;
  }
  const { row, history, trouble, events } = answer;
  return (
    <section aria-labelledby="function-title">
      <div class="bar">
        <h1 id="function-title">
          {row.name} <span class="muted">version {row.version}</span>
        </h1>
        <RangePicker {...time} />
      </div>
      <p class="muted">{row.description}</p>
      {loaded.state === 'failed' && <Message text={loaded.message} level="warning" />}
      {row.reason !== null && <Message text={row.reason} level="warning" />}
      <Management row={row} onDone={loaded.reload} />
      {trouble !== null && (
        <section class="card trouble" aria-labelledby="missed-title">
          <h2 id="missed-title">Why calls missed the SLO</h2>
          <Missed row={trouble} nowMs={history.toMs} own={saidOnce([trouble]).rows[0]!} />
        </section>
      )}
      <FunctionTiles row={row} totals={history.totals} />
      <FunctionPlots answer={answer} />
      <Versions name={row.name} paused={paused} />
      {inFleet && <Homes name={row.name} paused={paused} />}
      <TryIt answer={answer} />
      <section class="card" aria-labelledby="curl-title">
        <h2 id="curl-title">From a shell</h2>
        <pre>{answer.curl}</pre>
        <CopyButton text={answer.curl} />
      </section>
      <Events events={events.toReversed()} paused={paused} named={false} />
      <FunctionLog name={row.name} calledAs={answer.calledAs} paused={paused} />
    </section>
  );
}

function FunctionTiles({ row, totals }: Pick<FunctionAnswer, 'row'> & Pick<FunctionAnswer['history'], 'totals'>) {
  return (
    <div class="tiles">
      <Tile
        name="Goodput"
        id="f-goodput"
        value={formatShare(row.goodputShare)}
        note={`${totals.in_slo} within ${formatMs(row.sloMs)}`}
        warn={row.goodputShare !== null && row.goodputShare < 0.99}
      />
      <Tile
        name="Offered"
        id="f-offered"
        value={formatRate(row.requestsPerSecond)}
        note={`${totals.offered} invocations`}
      />
      <Tile
        name="p99"
        id="f-p99"
        value={formatMs(totals.p99Ms)}
        note={`p50 ${formatMs(totals.p50Ms)}, SLO ${formatMs(row.sloMs)}`}
        warn={totals.p99Ms !== null && totals.p99Ms > row.sloMs}
      />
      <Tile name="Cold starts" id="f-cold" value={String(totals.cold)} note={coldNote(row)} />
      <Tile name="Where" id="f-where" value={row.state === 'ready' ? row.residency : row.state} note={whereNote(row)} />
      <Tile
        name="Calls"
        id="f-calls"
        value={String(row.statuses.reduce((sum, { count }) => sum + count, 0))}
        note={
          row.statuses.map(({ status, count }) => `${status}: ${count}`).join(', ') || 'none since the host started'
        }
      />
      <Tile
        name="Bytes"
        id="f-bytes"
        value={formatBytes(row.diskBytes)}
        note={`${row.gpuState === null ? '' : `GPU ${formatBytes(row.gpuBytes)}, `}host ${formatBytes(row.hostBytes)}`}
      />
    </div>
  );
}

function FunctionPlots({ answer }: { readonly answer: FunctionAnswer }) {
  const { row, history, latencies, prediction, parts } = answer;
  const { columns, totals } = history;
  const { counts, stepMs } = coarser(columns, history.stepMs);
  return (
    <div class="plots">
      <Plot
        title="Outcomes, per second"
        summary={`${totals.in_slo} within the SLO, ${totals.late} late, ${totals.shed} shed, ${totals.failed} failed`}
        atMs={counts.atMs}
        format={formatRate}
        series={areas(outcomeLooks, counts, stepMs)}
      />
      <Plot
        title="Latency against the SLO"
        logarithmic
        summary={`p99 ${formatMs(totals.p99Ms)}, SLO ${formatMs(row.sloMs)}`}
        atMs={columns.atMs}
        format={formatMs}
        series={[
          line('p50', '--cpu', columns.p50Ms),
          line('p99', '--late', columns.p99Ms),
          limit('SLO', '--muted', columns.atMs, row.sloMs),
        ]}
      />
      <Plot
        title="Where the time of an answer went, mean"
        summary={partLooks.map(([part, label]) => `${label} ${formatMs(latestOf(parts[part]))}`).join(', ')}
        atMs={columns.atMs}
        format={formatMs}
        // The parts are milliseconds, not counts: a step of 1000 ms leaves them as they are.
        series={areas(partLooks, parts, 1000, (index) => columns.p50Ms[index] !== null)}
      />
      {prediction.length > 0 && (
        <Plot
          title="Predicted and observed latency"
          summary={`${prediction.length} predictions`}
          atMs={prediction.map(({ atMs }) => atMs)}
          format={formatMs}
          series={[
            line(
              'Predicted',
              '--remote',
              prediction.map(({ predictedMs }) => predictedMs),
              'dashed',
            ),
            line(
              'Observed',
              '--cpu',
              prediction.map(({ observedMs }) => observedMs),
            ),
          ]}
        />
      )}
      <Distribution {...latencies} sloMs={row.sloMs} />
    </div>
  );
}

function coldNote({ coldShare, diskStarts }: FunctionAnswer['row']): string {
  if (coldShare === null) return 'nothing was answered';
  const fromDisk = diskStarts === 0 ? '' : `, ${diskStarts} from disk`;
  return `${formatShare(coldShare)} of the answers${fromDisk}`;
}

/** Which GPUs the function is on, or why it is on none. */
function whereNote({ plan, instances, waiting, gpus, gpuState, coldCause }: FunctionAnswer['row']): string {
  const pool = `${instances} CPU instance${instances === 1 ? '' : 's'}, ${waiting} waiting`;
  if (gpus.length > 0) {
    const on = `on GPU ${gpus.join(' and ')}${plan === '' ? '' : `, ${plan}`}`;
    return coldCause === null ? on : `${on}; last cold start: ${coldCause}`;
  }
  const why = gpuState?.whyNot ?? (gpuState === null ? null : coldCause);
  return [plan === '' ? pool : plan, ...(why === null || plan.includes(why) ? [] : [why])].join('; ');
}

/** A histogram of latencies; bars beyond the SLO have another colour. */
function Distribution({ boundsMs, counts, sloMs }: FunctionAnswer['latencies'] & { readonly sloMs: number }) {
  const first = counts.findIndex((count) => count > 0);
  if (first < 0) return null;
  const last = counts.findLastIndex((count) => count > 0);
  const from = Math.max(0, first - 1);
  const shown = counts.slice(from, last + 2);
  const most = Math.max(...shown);
  const total = counts.reduce((sum, count) => sum + count, 0);
  return (
    <figure
      class="plot"
      role="img"
      aria-label={`Distribution of ${total} latencies from ${formatMs(boundsMs[first])} to ${formatMs(boundsMs[last])}`}
    >
      <figcaption>
        Distribution of latency, {total.toLocaleString('en')} answer{total === 1 ? '' : 's'}
      </figcaption>
      <div class="distribution">
        {shown.map((count, index) => {
          const bound = boundsMs[from + index]!;
          return (
            <div key={bound} class={bound > sloMs ? 'late' : 'good'} title={`up to ${formatMs(bound)}: ${count}`}>
              <i style={{ height: `${(100 * count) / most}%` }} />
              <span>{index % 3 === 0 ? formatMs(bound) : ''}</span>
            </div>
          );
        })}
      </div>
    </figure>
  );
}

interface ManagementProps {
  readonly row: FunctionAnswer['row'];
  readonly onDone: () => void;
}

/** Preload, unload and pins for all functions; new versions and removal for uploaded ones. */
function Management({ row, onDone }: ManagementProps) {
  const { said, busy, act } = useAction(onDone);
  const model = encodeURIComponent(row.name);
  const pin = async (): Promise<void> => {
    await act(row.pinned ? 'Unpinned' : 'Pinned', `/functions/${model}`, {
      method: 'PATCH',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ pinned: !row.pinned }),
    });
  };
  const remove = async (): Promise<void> => {
    if (!confirm(`Remove ${row.name} with all of its versions?`)) return;
    await act('Removed', `/functions/${model}`, { method: 'DELETE' });
    location.hash = '#/functions';
  };
  return (
    <div class="controls">
      <button
        type="button"
        disabled={busy}
        onClick={() => void act('Preloaded', `/v2/repository/models/${model}/load`, { method: 'POST' })}
      >
        Preload
      </button>
      <button
        type="button"
        disabled={busy}
        onClick={() => void act('Unloaded', `/v2/repository/models/${model}/unload`, { method: 'POST' })}
      >
        Unload
      </button>
      {row.source === 'upload' && (
        <>
          <button type="button" disabled={busy} onClick={() => void pin()}>
            {row.pinned ? 'Unpin' : 'Pin'}
          </button>
          <a class="button" href={`#/publish?name=${model}`}>
            New version
          </a>
          <button type="button" disabled={busy} class="danger" onClick={() => void remove()}>
            Remove
          </button>
        </>
      )}
      {said !== undefined && <Message {...said} />}
    </div>
  );
}
