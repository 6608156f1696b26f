import { useEffect, useRef, useState } from 'preact/hooks';
import { answeredOf, placeNames } from '../../../calls/placement.ts';
import type { ErrorsAnswer, HistoryAnswer } from '../../api-types.ts';
import { errorNote, errorSums, isFlood } from '../logic/errors.ts';
import { formatAgo, formatMs, formatRate, formatShare, formatTime } from '../logic/format.ts';
import { coarser, goodputShare, hasGap, perSecond, stacked, totalsOf, withTick, zoomed } from '../logic/series.ts';
import { line, Plot, type PlotProps, type PlotSeries } from '../plot.tsx';
import { answerOf, usePolled, type Live } from '../state.ts';
import { Events } from './events.tsx';
import { Trouble } from './trouble.tsx';
import { Message, RangePicker, TableCard, Tile, type RangePickerProps } from './parts.tsx';

export type TimeProps = Omit<RangePickerProps, 'zoomed' | 'onReset'>;

export const outcomeLooks = [
  ['in_slo', 'Within SLO', '--good'],
  ['late', 'Late', '--late'],
  ['shed', 'Shed', '--shed'],
  ['failed', 'Failed', '--failed'],
] as const;
const placeLooks = [
  ['gpuWarm', 'GPU warm', '--good'],
  ['gpuCold', 'GPU cold', '--cold'],
  ['cpu', 'CPU pool', '--cpu'],
  ['remote', 'Remote worker', '--remote'],
] as const;

/** Steps of a second come with the event stream; coarser ones are requested when one is over. */
function useHistory({ range, paused }: Pick<TimeProps, 'range' | 'paused'>, live: Live) {
  const everyMs = range.ms <= 900_000 ? 60_000 : range.ms <= 7_200_000 ? 5000 : 30_000;
  const polled = usePolled<HistoryAnswer>(`/api/history?range=${range.id}`, everyMs, paused);
  const asked = answerOf(polled);
  const [history, setHistory] = useState<HistoryAnswer | undefined>(undefined);
  const asksAgain = useRef(false);
  useEffect(() => {
    asksAgain.current = false;
    setHistory(asked);
  }, [asked]);
  useEffect(() => {
    const { tick } = live;
    if (tick === undefined || paused || history === undefined) return;
    setHistory((before) => (before === undefined ? before : withTick(before, tick)));
    if (!hasGap(history, tick) || asksAgain.current) return;
    asksAgain.current = true;
    polled.reload();
  }, [live.tick, paused]);
  // Until a new range arrives, the old one would be drawn under the new heading.
  const fits =
    history !== undefined &&
    history.toMs - history.fromMs >= range.ms * 0.5 &&
    history.toMs - history.fromMs <= range.ms * 2 + history.stepMs;
  return { history: fits ? history : undefined, failed: polled.state === 'failed' ? polled.message : undefined };
}

export function areas(
  looks: readonly (readonly [string, string, string])[],
  columns: Readonly<Record<string, readonly number[]>>,
  stepMs: number,
  isThere: (index: number) => boolean = () => true,
): PlotSeries[] {
  const drawn = looks.map(([name]) => perSecond(columns[name] ?? [], stepMs));
  const own = drawn.map((values) => values.map((value, index) => (isThere(index) ? value : null)));
  const sums = stacked(drawn);
  return looks
    .map(([, label, colour], index): PlotSeries => ({
      label,
      colour,
      look: 'area',
      values: sums[index]!,
      own: own[index]!,
    }))
    .toReversed();
}

export function Overview({ live, ...time }: TimeProps & { readonly live: Live }) {
  const { range, paused, onPause } = time;
  const [zoom, setZoom] = useState<readonly [number, number] | null>(null);
  const { history, failed } = useHistory(time, live);
  const errors = answerOf(usePolled<ErrorsAnswer>(`/api/errors?range=${range.id}`, 5000, paused));
  useEffect(() => setZoom(null), [range]);
  if (history === undefined)
    return failed === undefined ? <Message text="Loading…" /> : <Message text={failed} level="warning" />;

  const columns = zoomed(history.columns, zoom);
  const { stepMs } = history;
  const totals = totalsOf(columns);
  const seconds = Math.max(1, columns.atMs.filter((atMs) => atMs + stepMs > history.sinceMs).length * (stepMs / 1000));
  const zooming = {
    onZoom: (to: readonly [number, number]) => {
      setZoom(to);
      onPause(true);
    },
    onReset: () => {
      setZoom(null);
      onPause(false);
    },
  };
  const wrong = errorSums(errors ?? { causes: [] });
  return (
    <section aria-labelledby="overview-title">
      <div class="bar">
        <h1 id="overview-title">Overview</h1>
        <RangePicker {...time} zoomed={zoom !== null} onReset={zooming.onReset} />
      </div>
      <Trouble range={range} paused={paused} />
      <OverviewTiles {...{ history, totals, seconds, live, wrong }} />
      <Errors answer={errors} />
      <OverviewPlots {...{ history, columns, totals, errors, wrong, zooming }} />
      <Events events={live.events} paused={paused} />
    </section>
  );
}

/** Fewer are no trend, as in the head. */
const callsMin = 20;

interface OverviewTilesProps {
  readonly history: HistoryAnswer;
  readonly totals: ReturnType<typeof totalsOf>;
  readonly seconds: number;
  readonly live: Live;
  readonly wrong: ReturnType<typeof errorSums>;
}

function OverviewTiles({ history, totals, seconds, live, wrong }: OverviewTilesProps) {
  const share = goodputShare(totals);
  const missed = totals.late + totals.shed + totals.failed;
  // A first call loads its model, and is late.
  const isBad = share !== null && share < 0.99 && totals.in_slo + missed >= callsMin;
  const answered = answeredOf(totals);
  return (
    <div class="tiles">
      <Tile
        name="Goodput"
        value={formatRate(totals.in_slo / seconds)}
        note={share === null ? 'nothing was answered' : `${formatShare(share)} of what ended met its SLO`}
        id="goodput"
        warn={isBad}
      />
      <Tile
        name="Offered"
        value={formatRate(totals.offered / seconds)}
        note={totals.offered === 1 ? '1 invocation' : `${totals.offered.toLocaleString('en')} invocations`}
        id="offered"
      />
      <Tile
        name="Missed"
        value={missed.toLocaleString('en')}
        note={`${totals.late} late, ${totals.shed} shed, ${totals.failed} failed`}
        id="missed"
        warn={isBad}
      />
      <Tile
        name="Errors"
        value={(wrong.client + wrong.host).toLocaleString('en')}
        note={errorNote(wrong)}
        id="errors"
        warn={isFlood(wrong, totals.offered)}
      />
      <Tile
        name="p99"
        value={formatMs(history.totals.p99Ms)}
        note={
          history.totals.p50Ms === null ? 'nothing was answered' : `p50 ${formatMs(history.totals.p50Ms)}, whole range`
        }
        id="p99"
      />
      <Tile
        name="Cold starts"
        value={totals.cold.toLocaleString('en')}
        note={
          totals.cold === 0
            ? 'none in this time'
            : `${formatShare(totals.cold / Math.max(totals.cold, answered))} of the answers`
        }
        id="cold"
      />
      <Tile
        name="Waiting now"
        value={String(live.tick?.waiting ?? 0)}
        note={`${live.tick?.inFlight ?? 0} in flight`}
        id="waiting"
      />
    </div>
  );
}

interface OverviewPlotsProps extends Pick<OverviewTilesProps, 'history' | 'totals' | 'wrong'> {
  readonly columns: HistoryAnswer['columns'];
  readonly errors: ErrorsAnswer | undefined;
  readonly zooming: Pick<PlotProps, 'onZoom' | 'onReset'>;
}

function OverviewPlots({ history, columns, totals, errors, wrong, zooming }: OverviewPlotsProps) {
  const { counts, stepMs } = coarser(columns, history.stepMs);
  return (
    <div class="plots">
      <Plot
        title="Goodput and offered load, per second"
        summary={`${formatShare(goodputShare(totals))} within the SLO, ${totals.offered} offered`}
        atMs={counts.atMs}
        format={formatRate}
        series={[...areas(outcomeLooks, counts, stepMs), line('Offered', '--text', perSecond(counts.offered, stepMs))]}
        {...zooming}
      />
      <Plot
        title="Latency"
        logarithmic
        summary={`p50 ${formatMs(history.totals.p50Ms)}, p99 ${formatMs(history.totals.p99Ms)}`}
        atMs={columns.atMs}
        format={formatMs}
        series={[line('p50', '--cpu', columns.p50Ms), line('p99', '--late', columns.p99Ms)]}
        {...zooming}
      />
      <Plot
        title="Where requests ran, per second"
        summary={placeNames
          .filter((name) => totals[name] > 0)
          .map((name) => `${name} ${totals[name]}`)
          .join(', ')}
        atMs={counts.atMs}
        format={formatRate}
        series={areas(
          placeLooks.filter(([name]) => name === 'cpu' || totals[name] > 0),
          counts,
          stepMs,
        )}
        {...zooming}
      />
      {errors !== undefined && (
        <Plot
          title="Errors, per second"
          summary={errorNote(wrong)}
          atMs={errors.columns.atMs}
          format={formatRate}
          series={[
            line('Of callers (4xx)', '--late', perSecond(errors.columns.client, errors.stepMs)),
            line('Of the host (5xx)', '--failed', perSecond(errors.columns.host, errors.stepMs)),
          ]}
          {...zooming}
        />
      )}
      <Plot
        title={stepMs === 1000 ? 'Cold starts, each second' : `Cold starts, every ${stepMs / 1000} s`}
        summary={`${totals.cold} cold starts`}
        atMs={counts.atMs}
        format={(value) => (Number.isInteger(value) ? String(value) : '')}
        series={[{ label: 'Cold starts', colour: '--cold', look: 'bars', values: counts.cold }]}
        {...zooming}
      />
    </div>
  );
}

/** Why requests were refused or failed, by status; nothing without errors. */
function Errors({ answer }: { readonly answer: ErrorsAnswer | undefined }) {
  if (answer === undefined || answer.causes.length === 0) return null;
  return (
    <TableCard
      id="errors-title"
      title="Errors by status"
      headings={['Status', 'Requests', 'Latest', { name: 'Cause', words: true }]}
      rows={answer.causes.map(({ status, code, when, count, lastMs }) => ({
        key: `${status} ${code}`,
        marks: { 'data-code': code },
        cells: [
          <span class={`state ${status >= 500 ? 'sick' : 'draining'}`}>{status}</span>,
          count.toLocaleString('en'),
          <span title={formatAgo(lastMs, Date.now())}>{formatTime(lastMs)}</span>,
          <>
            <strong>{code}</strong> <span class="muted">{when}</span>
          </>,
        ],
      }))}
    />
  );
}
