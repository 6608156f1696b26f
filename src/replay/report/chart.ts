/** Line charts as SVG text: no library, no network, and readable without a script. */
import { getOrMake, given } from '../../tools/index.ts';

export interface ChartSeries {
  readonly name: string;
  /** In order of x; null for y leaves a gap. */
  readonly points: readonly (readonly [x: number, y: number | null])[];
}

export interface Chart {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  readonly series: readonly ChartSeries[];
  /** A horizontal line, such as the SLO. */
  readonly rule?: { readonly y: number; readonly label: string };
  /** The axis runs at least to here. */
  readonly yMax?: number;
  /** Of y values, in labels. */
  readonly unit?: 'ms' | 'share' | 'count';
  /** Marks the points, for series in which each is a run of its own. */
  readonly marked?: boolean;
  /** Logarithmic where values span more than a factor of 30. */
  readonly logWhenWide?: boolean;
}

/** How pages plot what several of them have. */
export const plots = {
  latency: (sloMs: number | undefined) => ({
    title: sloMs === undefined ? '99% latency' : `99% latency (SLO ${formatValue(sloMs, 'ms')})`,
    yLabel: 'milliseconds',
    unit: 'ms' as const,
    logWhenWide: true,
    ...given({ rule: sloMs === undefined ? undefined : { y: sloMs, label: 'SLO' } }),
  }),
  goodput: { title: 'Goodput', yLabel: 'answered within SLO', unit: 'share', yMax: 1 },
  coldStarts: { title: 'Cold starts', yLabel: 'share of requests', unit: 'share' },
  evictions: { title: 'Evictions', yLabel: 'evictions' },
} as const;

const width = 620;
const height = 260;
const margin = { left: 62, right: 34, top: 12, bottom: 40 } as const;
const plotWidth = width - margin.left - margin.right;
const plotHeight = height - margin.top - margin.bottom;
/** Where the page's script draws its cursor. */
export const plotTop = margin.top;
export const plotBottom = margin.top + plotHeight;

interface Scale {
  readonly log: boolean;
  readonly ticks: readonly number[];
  /** Position from 0 to 1. */
  place(value: number): number;
}

/** Distance between ticks: 1, 2 or 5 times a power of ten. */
function tickStep(span: number, ticksWanted: number): number {
  const raw = span / ticksWanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((each) => each * power >= raw * 0.999) ?? 10;
  return factor * power;
}

export function linearScale(from: number, to: number, ticksWanted: number): Scale {
  const end = to > from ? to : from + 1;
  const step = tickStep(end - from, ticksWanted);
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(end / step + 1e-9);
  const ticks = Array.from({ length: last - first + 1 }, (_, index) =>
    Number(((first + index) * step).toPrecision(12)),
  );
  return { log: false, ticks, place: (value) => (value - from) / (end - from) };
}

function logScale(from: number, to: number): Scale {
  const low = Math.log10(from);
  const high = Math.log10(to);
  const ticks: number[] = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    // Between decades also 2 and 5, as long as labels are not crowded.
    for (const factor of high - low > 3 ? [1] : [1, 2, 5]) {
      const tick = factor * 10 ** power;
      if (tick >= from * 0.999 && tick <= to * 1.001) ticks.push(Number(tick.toPrecision(6)));
    }
  }
  return { log: true, ticks, place: (value) => (Math.log10(Math.max(from, value)) - low) / (high - low) };
}

function yScale({ series, rule, yMax = 0, unit, logWhenWide = false }: Chart): Scale {
  const values = series.flatMap(({ points }) => points.flatMap(([, y]) => (y === null ? [] : [y])));
  const most = values.reduce((max, value) => Math.max(max, value), Math.max(yMax, rule?.y ?? 0));
  const positive = values.filter((value) => value > 0);
  const least = positive.reduce((min, value) => Math.min(min, value), Infinity);
  if (logWhenWide && most > least * 30) return logScale(10 ** Math.floor(Math.log10(least)), most * 1.15);
  if (unit === 'share') return linearScale(0, Math.max(yMax, Math.min(1, most * 1.1)) || 1, 5);
  const top = most > 0 ? most * 1.08 : 1;
  const step = tickStep(top, 5);
  return linearScale(0, Math.ceil(top / step) * step, 5);
}

export function formatValue(value: number, unit: Chart['unit']): string {
  if (unit === 'share') return `${Number((value * 100).toPrecision(4))}%`;
  const text =
    Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(4)));
  return unit === 'ms' ? `${text} ms` : text;
}

export function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

const fixed = (value: number): string => String(Math.round(value * 10) / 10);

/** Shapes beside colours: for black-and-white print and for colour-blind readers. */
const markers: readonly ((x: string, y: string) => string)[] = [
  (x, y) => `<circle cx="${x}" cy="${y}" r="3.4"/>`,
  (x, y) => `<rect x="-3.1" y="-3.1" width="6.2" height="6.2" transform="translate(${x} ${y})"/>`,
  (x, y) => `<path d="M0-4.4 4 2.9H-4z" transform="translate(${x} ${y})"/>`,
  (x, y) => `<path d="M0-4.4 4.4 0 0 4.4-4.4 0z" transform="translate(${x} ${y})"/>`,
  (x, y) => `<path d="M0 4.4 4-2.9H-4z" transform="translate(${x} ${y})"/>`,
];

/** A short piece of a series' line, for the legend. */
export function renderKey(index: number, marked: boolean): string {
  const colour = `s${index % coloursCount}`;
  const mark = marked ? `<g class="mark ${colour}">${markers[index % markers.length]!('13', '6')}</g>` : '';
  return `<svg class="key" viewBox="0 0 26 12" aria-hidden="true"><path class="line ${colour}" d="M0 6H26"/>${mark}</svg>`;
}

/** How many series have different colours; further ones repeat them. */
export const coloursCount = 6;

/** A figure element: caption, SVG, and the data from which the page's script shows values under the pointer. */
export function renderChart(chart: Chart): string {
  const { title, xLabel, yLabel, series, rule, unit, marked = false } = chart;
  const xs = series.flatMap(({ points }) => points.map(([x]) => x));
  const xFrom = xs.reduce((min, x) => Math.min(min, x), Infinity);
  const xTo = xs.reduce((max, x) => Math.max(max, x), -Infinity);
  if (xs.length === 0) return `<figure><figcaption>${escapeHtml(title)}</figcaption><p>Nothing to show.</p></figure>`;
  const xAxis = linearScale(xFrom, xTo, 8);
  const yAxis = yScale(chart);
  const toX = (x: number): string => fixed(margin.left + xAxis.place(x) * plotWidth);
  const toY = (y: number): string => fixed(margin.top + (1 - Math.min(1, yAxis.place(y))) * plotHeight);
  const bottom = margin.top + plotHeight;
  const parts: string[] = [];
  for (const tick of yAxis.ticks) {
    const y = toY(tick);
    parts.push(`<path class="grid" d="M${margin.left} ${y}H${width - margin.right}"/>`);
    const label = unit === 'share' ? formatValue(tick, 'share') : formatValue(tick, 'count');
    parts.push(`<text x="${margin.left - 7}" y="${y}" dy="0.32em" text-anchor="end">${label}</text>`);
  }
  for (const tick of xAxis.ticks) {
    const x = toX(tick);
    parts.push(`<path class="tick" d="M${x} ${bottom}v4"/>`);
    parts.push(`<text x="${x}" y="${bottom + 16}" text-anchor="middle">${formatValue(tick, 'count')}</text>`);
  }
  parts.push(`<path class="axis" d="M${margin.left} ${bottom}H${width - margin.right}"/>`);
  const middle = margin.left + plotWidth / 2;
  parts.push(`<text x="${middle}" y="${height - 6}" text-anchor="middle">${escapeHtml(xLabel)}</text>`);
  const turned = `translate(13 ${margin.top + plotHeight / 2}) rotate(-90)`;
  const yTitle = yAxis.log ? `${yLabel}, logarithmic` : yLabel;
  parts.push(`<text transform="${turned}" text-anchor="middle">${escapeHtml(yTitle)}</text>`);
  if (rule !== undefined) {
    const y = toY(rule.y);
    parts.push(`<path class="rule" d="M${margin.left} ${y}H${width - margin.right}"/>`);
    // Beside the plot, where no line crosses it.
    parts.push(
      `<text class="rule" x="${width - margin.right + 4}" y="${y}" dy="0.32em">${escapeHtml(rule.label)}</text>`,
    );
  }
  for (const [index, { points }] of series.entries()) {
    const colour = `s${index % coloursCount}`;
    parts.push(`<path class="line ${colour}" d="${linePath(points, toX, toY)}"/>`);
    const marker = markers[index % markers.length]!;
    const alone = points.filter(([, y], at) => y !== null && (marked || isAlone(points, at)));
    const marks = alone.map(([x, y]) => marker(toX(x), toY(y ?? 0)));
    if (marks.length > 0) parts.push(`<g class="mark ${colour}">${marks.join('')}</g>`);
  }
  const svg = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}">${parts.join('')}<path class="cursor" d=""/></svg>`;
  const caption = `<figcaption>${escapeHtml(title)}</figcaption>`;
  return `<figure data-chart="${escapeHtml(chartData(chart, toX))}">${caption}${svg}</figure>`;
}

/** A value between two gaps would be a line without length. */
function isAlone(points: ChartSeries['points'], at: number): boolean {
  return (points[at - 1]?.[1] ?? null) === null && (points[at + 1]?.[1] ?? null) === null;
}

function linePath(points: ChartSeries['points'], toX: (x: number) => string, toY: (y: number) => string): string {
  let path = '';
  let drawing = false;
  for (const [x, y] of points) {
    if (y !== null) path += `${drawing ? 'L' : 'M'}${toX(x)} ${toY(y)}`;
    drawing = y !== null;
  }
  return path;
}

/** For each x: its position, its label, and the label of each series' value. */
function chartData({ series, xLabel, unit }: Chart, toX: (x: number) => string): string {
  const rows = new Map<number, (string | null)[]>();
  for (const [index, { points }] of series.entries()) {
    for (const [x, y] of points) {
      const row = getOrMake(rows, x, () => series.map(() => null));
      row[index] = y === null ? null : formatValue(y, unit);
    }
  }
  const sorted = [...rows].sort(([a], [b]) => a - b);
  return JSON.stringify({
    x: xLabel,
    names: series.map(({ name }) => name),
    rows: sorted.map(([x, values]) => [Number(toX(x)), formatValue(x, 'count'), values]),
  });
}
