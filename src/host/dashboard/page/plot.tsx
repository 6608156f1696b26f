/**
 * uPlot in the page's colours, with zoom by dragging and values under the pointer. A plot is made anew when the colours
 * change.
 */
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { formatTime } from './logic/format.ts';
import { alone, latestOf } from './logic/points.ts';

export interface PlotSeries {
  readonly label: string;
  /** A CSS variable. */
  readonly colour: string;
  readonly values: readonly (number | null)[];
  /** 'area' is filled down to the series after it. */
  readonly look: 'line' | 'area' | 'bars' | 'dashed';
  /** Values for the legend, if the drawn ones are running sums. */
  readonly own?: readonly (number | null)[];
}

export interface PlotProps {
  readonly title: string;
  /** A description of the plot for screen readers. */
  readonly summary: string;
  readonly atMs: readonly number[];
  readonly series: readonly PlotSeries[];
  /** `most`: the largest value of an axis, all of whose labels have one unit. */
  readonly format: (value: number, most?: number) => string;
  readonly height?: number;
  readonly logarithmic?: boolean;
  readonly onZoom?: (range: readonly [number, number]) => void;
  readonly onReset?: () => void;
}

/** A series that is drawn as a line. */
export const line = (
  label: string,
  colour: string,
  values: PlotSeries['values'],
  look: 'line' | 'dashed' = 'line',
): PlotSeries => ({ label, colour, look, values });

const syncKey = 'turntable';

/** Ranges longer than this have ticks on whole minutes. */
const minutesFromS = 240;
const wholeMinutesS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((minutes) => 60 * minutes);
const secondsS = [1, 2, 5, 10, 15, 30, 60, 120];

function timeOfTick(tick: number, everyS: number): string {
  const time = new Date(tick * 1000).toLocaleTimeString('en-GB');
  return everyS % 60 === 0 ? time.slice(0, 5) : time;
}

/** Ignores the lines that mark a limit. */
const isEmpty = (series: readonly PlotSeries[]): boolean =>
  series.every(({ look, values, own = values }) => look === 'dashed' || own.every((value) => value === null));

/** A logarithmic axis has lines only at these: ten a decade would be a grey field. */
const wholePower = (value: number): number | null =>
  Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null;

/** @param latest values that may change during the life of a plot */
function optionsOf(
  element: HTMLElement,
  { series, height, logarithmic }: Required<Pick<PlotProps, 'series' | 'height' | 'logarithmic'>>,
  latest: { readonly current: Pick<PlotProps, 'format' | 'series'> & { readonly onZoom: PlotProps['onZoom'] } },
  onPointed: (index: number | null) => void,
): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string): string => style.getPropertyValue(name).trim() || '#888';
  const axis = { stroke: colour('--muted'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height,
    // Room for half of the last label.
    padding: [null, 26, null, null],
    cursor: { sync: { key: syncKey }, drag: { x: true, y: false }, focus: { prox: 16 } },
    legend: { show: false },
    scales: { y: logarithmic ? { distr: 3 } : { range: (_plot, _least, most) => [0, most > 0 ? most * 1.08 : 1] } },
    axes: [
      {
        ...axis,
        // Whole minutes have short labels, so a narrow plot has room for more of them.
        values: (_plot, ticks, _axis, _space, everyS) => ticks.map((tick) => timeOfTick(tick, everyS)),
        incrs: (_plot, _axis, fromS, toS) => (toS - fromS > minutesFromS ? wholeMinutesS : secondsS),
        space: (_plot, _axis, fromS, toS) => (toS - fromS > minutesFromS ? 50 : 75),
        size: 30,
      },
      {
        ...axis,
        grid: { ...axis.grid, filter: (_plot, splits) => (logarithmic ? splits.map(wholePower) : splits) },
        size: 64,
        values: (_plot, ticks) => {
          const most = Math.max(...ticks);
          return ticks.map((tick) => (tick === null ? '' : latest.current.format(tick, most)));
        },
      },
    ],
    series: [
      {},
      ...series.map(({ colour: name, look }, index): uPlot.Series => ({
        stroke: colour(name),
        width: look === 'area' ? 1 : 1.75,
        // A line needs two points; a single value would be invisible.
        points: {
          show: false,
          size: 4,
          fill: colour(name),
          filter: () => (look === 'line' ? alone(latest.current.series[index]?.values ?? []) : null),
        },
        spanGaps: false,
        ...(look === 'area' ? { fill: `${colour(name)}66` } : {}),
        ...(look === 'bars' ? { fill: colour(name), paths: uPlot.paths.bars!({ size: [0.8, 24] }) } : {}),
        ...(look === 'dashed' ? { dash: [5, 4] } : {}),
      })),
    ],
    bands: series.flatMap(({ look }, index) =>
      look === 'area' && series[index + 1]?.look === 'area'
        ? [{ series: [index + 1, index + 2] as [number, number] }]
        : [],
    ),
    hooks: {
      setCursor: [(made) => onPointed(made.cursor.idx ?? null)],
      setSelect: [
        (made) => {
          if (made.select.width < 4) return;
          const from = made.posToVal(made.select.left, 'x') * 1000;
          const to = made.posToVal(made.select.left + made.select.width, 'x') * 1000;
          latest.current.onZoom?.([from, to]);
          made.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        },
      ],
    },
  };
}

export function Plot({
  title,
  summary,
  atMs,
  series,
  format,
  height = 190,
  logarithmic = false,
  onZoom,
  onReset,
}: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  /** The step under the pointer, in this plot or in one beside it. */
  const [pointed, setPointed] = useState<number | null>(null);
  const latest = useRef({ onZoom, onReset, format, series });
  latest.current = { onZoom, onReset, format, series };
  const data = [atMs.map((at) => at / 1000), ...series.map(({ values }) => [...values])] as uPlot.AlignedData;
  // The page draws everything again when the theme changes.
  const { theme } = document.documentElement.dataset;
  const shape = series.map(({ label, look }) => `${label}:${look}`).join() + String(theme) + String(logarithmic);

  useEffect(() => {
    const element = host.current!;
    const options = optionsOf(element, { series, height, logarithmic }, latest, setPointed);
    const made = new uPlot(options, data, element);
    plot.current = made;
    const onDouble = (): void => latest.current.onReset?.();
    made.over.addEventListener('dblclick', onDouble);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
    // Everything else reaches the plot through `latest` or setData.
  }, [shape, height]);

  useEffect(() => plot.current?.setData(data), [data]);

  return (
    <figure class="plot" role="img" aria-label={`${title}. ${summary}`}>
      <figcaption>{title}</figcaption>
      <div>
        <div ref={host} />
        {isEmpty(series) && <p class="empty muted">Nothing was answered in this time.</p>}
      </div>
      <ul class="legend">
        {series.map(({ label, colour, look, values, own = values }) => {
          const value = pointed === null ? latestOf(own) : (own[pointed] ?? null);
          return (
            <li key={label} class={look} style={{ '--series': `var(${colour})` }}>
              {label} <strong>{value === null ? '–' : format(value)}</strong>
            </li>
          );
        })}
        <li class="muted">{pointed === null ? 'latest' : formatTime(atMs[pointed] ?? 0)}</li>
      </ul>
    </figure>
  );
}
