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
  /** Values of the x axis: instants, or what `x` says. */
  readonly atMs: readonly number[];
  /** Left out: instants. */
  readonly x?: PlotAxis | undefined;
  /** Of the y axis; from 0 to a little above the most where left out. */
  readonly yRange?: readonly [number, number] | undefined;
  readonly series: readonly PlotSeries[];
  /** `most`: the largest value of an axis, all of whose labels have one unit. */
  readonly format: (value: number, most?: number) => string;
  readonly logarithmic?: boolean | undefined;
  readonly onZoom?: (range: readonly [number, number]) => void;
  readonly onReset?: () => void;
}

/** An x axis that is no clock. */
export interface PlotAxis {
  readonly name: string;
  readonly format: (value: number) => string;
  readonly logarithmic?: boolean;
  /** Lines join the values on both sides of one that is missing. */
  readonly spansGaps?: boolean;
}

/** A series that is drawn as a line. */
export const line = (
  label: string,
  colour: string,
  values: PlotSeries['values'],
  look: 'line' | 'dashed' = 'line',
): PlotSeries => ({ label, colour, look, values });

/** A level that the series are to stay below, or above. */
export const limit = (label: string, colour: string, atMs: readonly number[], value: number): PlotSeries =>
  line(
    label,
    colour,
    atMs.map(() => value),
    'dashed',
  );

const syncKey = 'turntable';
const height = 190;

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
  { series, logarithmic = false, x, yRange }: Pick<PlotProps, 'series' | 'logarithmic' | 'x' | 'yRange'>,
  latest: { readonly current: Pick<PlotProps, 'format' | 'series' | 'x'> & { readonly onZoom: PlotProps['onZoom'] } },
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
    cursor: {
      sync: { key: x === undefined ? syncKey : `${syncKey} ${x.name}` },
      drag: { x: true, y: false },
      focus: { prox: 16 },
    },
    legend: { show: false },
    scales: {
      x: x === undefined ? {} : { time: false, ...(x.logarithmic === true && { distr: 3 as const }) },
      y: logarithmic
        ? { distr: 3 }
        : { range: (_plot, _least, most) => (yRange === undefined ? [0, most > 0 ? most * 1.08 : 1] : [...yRange]) },
    },
    axes: [
      x !== undefined
        ? {
            ...axis,
            grid: {
              ...axis.grid,
              filter: (_plot, splits) => (x.logarithmic === true ? splits.map(wholePower) : splits),
            },
            ...(x.logarithmic === true && { filter: (_plot: uPlot, splits: number[]) => splits.map(wholePower) }),
            values: (_plot, ticks) => ticks.map((tick) => (tick === null ? '' : (latest.current.x ?? x).format(tick))),
            space: 75,
            size: 30,
          }
        : {
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
        size: 76,
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
        spanGaps: x?.spansGaps === true,
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

export function Plot({ title, summary, atMs, series, format, logarithmic, x, yRange, onZoom, onReset }: PlotProps) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  /** The step under the pointer, in this plot or in one beside it. */
  const [pointed, setPointed] = useState<number | null>(null);
  const latest = useRef({ onZoom, onReset, format, series, x });
  latest.current = { onZoom, onReset, format, series, x };
  const data = [
    atMs.map((at) => (x === undefined ? at / 1000 : at)),
    ...series.map(({ values }) => [...values]),
  ] as uPlot.AlignedData;
  // The page draws everything again when the theme changes.
  const { theme } = document.documentElement.dataset;
  const shape =
    series.map(({ label, look }) => `${label}:${look}`).join() + [theme, logarithmic, x?.name, yRange].join();

  useEffect(() => {
    const element = host.current!;
    const options = optionsOf(element, { series, logarithmic, x, yRange }, latest, setPointed);
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
  }, [shape]);

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
          // What a curve ends with is no latest value.
          const shown = pointed === null ? (x === undefined ? latestOf(own) : null) : (own[pointed] ?? null);
          return (
            <li key={label} class={look} style={{ '--series': `var(${colour})` }}>
              {label}
              {(shown !== null || x === undefined) && <strong> {shown === null ? '–' : format(shown)}</strong>}
            </li>
          );
        })}
        <li class="muted">{pointedText(pointed === null ? undefined : (atMs[pointed] ?? 0), x)}</li>
      </ul>
    </figure>
  );
}

function pointedText(at: number | undefined, x: PlotAxis | undefined): string {
  if (x === undefined) return at === undefined ? 'latest' : formatTime(at);
  if (at === undefined) return x.name;
  const text = x.format(at);
  return text.endsWith(x.name) ? text : `${x.name} ${text}`;
}
