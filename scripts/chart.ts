/** Charts as SVG text, for pages that are read without a program. Pure. */

/** How a figure came about, which its strokes show: measured ones are solid, simulated ones dashed or hatched. */
export type Origin = 'measured' | 'simulated' | 'printed';

export interface Line {
  readonly name: string;
  readonly origin: Origin;
  readonly points: readonly (readonly [x: number, y: number])[];
}

interface Chart {
  readonly title: string;
  /** Where the figures come from: it stands under the title. */
  readonly source: string;
  readonly yLabel: string;
}

export interface LineChart extends Chart {
  readonly xLabel: string;
  /** Powers of ten; points above `yMax` are drawn at its height. */
  readonly isLog?: boolean;
  readonly yMax: number;
  readonly yMin?: number;
  readonly lines: readonly Line[];
  readonly limit?: { readonly y: number; readonly name: string };
}

export interface BarChart extends Chart {
  readonly yMax: number;
  readonly groups: readonly {
    readonly name: string;
    readonly bars: readonly { readonly name: string; readonly origin: Origin; readonly value: number }[];
  }[];
}

const width = 760;
const height = 400;
const plot = { left: 64, right: 740, top: 84, bottom: 300 };
/** Distinct for those who see few colours too (Okabe and Ito). */
const colours = ['#d55e00', '#0072b2', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#000000'];

const escaped = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

const round = (value: number): string => String(Number(value.toFixed(1)));

function text(x: number, y: number, words: string, more = ''): string {
  return `<text x="${round(x)}" y="${round(y)}" ${more}>${escaped(words)}</text>`;
}

/** Up to about six round numbers from 0. */
function ticksTo(most: number): number[] {
  const rough = most / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough)!;
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, index) =>
    Number((index * step).toPrecision(6)),
  );
}

function framed(
  { title, source, yLabel }: Chart,
  legend: readonly Pick<Line, 'name' | 'origin'>[],
  body: string[],
): string {
  const names = legend.map(({ name, origin }, index) => {
    const x = plot.left + (index % 4) * 172;
    const y = 360 + Math.floor(index / 4) * 20;
    return swatch(x, y - 4, index, origin) + text(x + 34, y, name);
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}" font-family="system-ui, sans-serif" font-size="12" fill="#222">`,
    '<defs>',
    ...colours.map((colour, index) => `<pattern id="h${index}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff"/><rect width="3" height="6" fill="${colour}"/></pattern>`), // prettier-ignore
    '</defs>',
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    text(16, 26, title, 'font-size="16" font-weight="600"'),
    text(16, 46, source, 'fill="#555"'),
    text(16, 72, yLabel, 'fill="#555"'),
    ...body,
    ...names,
    '</svg>',
    '',
  ].join('\n');
}

function swatch(x: number, y: number, index: number, origin: Origin): string {
  return `<path d="M${round(x)} ${round(y)}h28" stroke="${colours[index % colours.length]}" stroke-width="3" ${dashes(origin)}/>`; // prettier-ignore
}

const dashes = (origin: Origin): string =>
  ({ measured: '', simulated: 'stroke-dasharray="7 4"', printed: 'stroke-dasharray="2 3"' })[origin];

/** Horizontal lines at the ticks, with their numbers. */
function grid(ticks: readonly number[], yOf: (value: number) => number): string[] {
  return ticks.map(
    (tick) =>
      `<path d="M${plot.left} ${round(yOf(tick))}H${plot.right}" stroke="#ddd"/>` +
      text(plot.left - 8, yOf(tick) + 4, tick.toLocaleString('en-US'), 'text-anchor="end"'),
  );
}

export function lineChart(chart: LineChart): string {
  const { lines, xLabel, isLog = false, yMax, yMin = 0, limit } = chart;
  const xs = [...new Set(lines.flatMap(({ points }) => points.map(([x]) => x)))].toSorted((a, b) => a - b);
  const [least = 0] = xs;
  const most = xs.at(-1) ?? 1;
  const xOf = (x: number): number => plot.left + ((x - least) / (most - least || 1)) * (plot.right - plot.left);
  const share = (y: number): number =>
    isLog ? Math.log(y / yMin) / Math.log(yMax / yMin) : (y - yMin) / (yMax - yMin);
  const yOf = (y: number): number => plot.bottom - Math.min(1, Math.max(0, share(y))) * (plot.bottom - plot.top);
  const powers = [0.1, 1, 10, 100, 1000, 10_000, 100_000].filter((tick) => tick >= yMin && tick <= yMax);
  const ticks = isLog ? powers : ticksTo(yMax).filter((tick) => tick >= yMin);
  const gap = Math.max(1, Math.ceil(xs.length / 14));
  const body = [
    ...grid(ticks, yOf),
    ...xs.filter((_, index) => index % gap === 0).map((x) => text(xOf(x), plot.bottom + 18, x.toLocaleString('en-US'), 'text-anchor="middle"')), // prettier-ignore
    text(plot.right, plot.bottom + 34, xLabel, 'text-anchor="end" fill="#555"'),
    ...(limit === undefined
      ? []
      : [
          `<path d="M${plot.left} ${round(yOf(limit.y))}H${plot.right}" stroke="#888" stroke-width="1.5"/>`,
          text(plot.left + 4, yOf(limit.y) - 5, limit.name, 'fill="#555"'),
        ]),
    ...lines.flatMap(({ points, origin }, index) => {
      const colour = colours[index % colours.length];
      const path = points.map(([x, y], at) => `${at === 0 ? 'M' : 'L'}${round(xOf(x))} ${round(yOf(y))}`).join('');
      return [
        `<path d="${path}" fill="none" stroke="${colour}" stroke-width="2.5" ${dashes(origin)}/>`,
        ...points.map(([x, y]) => `<circle cx="${round(xOf(x))}" cy="${round(yOf(y))}" r="3" fill="${colour}"/>`),
      ];
    }),
  ];
  return framed(chart, lines, body);
}

export function barChart(chart: BarChart): string {
  const { groups, yMax } = chart;
  const kinds = groups[0]?.bars ?? [];
  const yOf = (y: number): number => plot.bottom - (Math.min(y, yMax) / yMax) * (plot.bottom - plot.top);
  const groupWidth = (plot.right - plot.left) / groups.length;
  const barWidth = (groupWidth * 0.8) / kinds.length;
  const leftOf = (group: number): number => plot.left + group * groupWidth + groupWidth * 0.1;
  const body = [
    ...grid(ticksTo(yMax), yOf),
    ...groups.map(({ name }, group) => text(leftOf(group) + groupWidth * 0.4, plot.bottom + 18, name, 'text-anchor="middle"')), // prettier-ignore
    ...groups.flatMap(({ bars }, group) =>
      bars.flatMap(({ value, origin }, index) => {
        if (!Number.isFinite(value)) return [];
        const colour = colours[index % colours.length];
        const fill = { measured: colour, simulated: `url(#h${index % colours.length})`, printed: '#fff' }[origin];
        const [x, y] = [leftOf(group) + index * barWidth, yOf(value)];
        return [`<rect x="${round(x)}" y="${round(y)}" width="${round(barWidth * 0.9)}" height="${round(plot.bottom - y)}" fill="${fill}" stroke="${colour}"/>`]; // prettier-ignore
      }),
    ),
  ];
  return framed(chart, kinds, body);
}
