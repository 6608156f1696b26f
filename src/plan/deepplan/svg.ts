/** The timeline of a cold start as a picture. */
import type { Machine } from '../../hardware/index.ts';
import { escaped, ticks } from '../picture.ts';
import type { Span } from './link-clock.ts';
import type { ColdStartPlan, Timeline } from './types.ts';

export interface ColdStartSvgOptions {
  /** What the picture is of, such as the name of the model. */
  readonly title: string;
  /** Where the layers' times come from: 'estimated', or 'a given profile'. */
  readonly source: string;
  /** Width of the picture in pixels. Default 1200. */
  readonly width?: number;
}

interface Bar {
  readonly span: Span;
  readonly look: Look;
  readonly name: string;
}

interface Lane {
  readonly name: string;
  readonly bars: readonly Bar[];
}

const colours = {
  copy: '#3a6ea5',
  migration: '#7a5195',
  gpu: '#2f7d4f',
  host: '#d9822b',
  stall: 'url(#stall)',
} as const;
type Look = keyof typeof colours;
const legend: Readonly<Record<Look, string>> = {
  copy: 'copy from host memory',
  migration: 'handed on over NVLink',
  gpu: 'executes from GPU memory',
  host: 'executes from host memory',
  stall: 'waits for weights',
};
const rowHeight = 34;
const barHeight = 24;
const labelWidth = 110;
const topHeight = 70;
const margin = 16;

const top = (row: number): number => topHeight + row * rowHeight;

/**
 * One row for each PCIe link that takes part, for each NVLink, and for the execution; stalls are hatched. Each bar tells
 * the pointer its layer and times. Every time is simulated, and the picture says so with the machine's name.
 */
export function renderColdStart(
  timeline: Timeline,
  plan: ColdStartPlan,
  machine: Machine,
  { title, source, width = 1200 }: ColdStartSvgOptions,
): string {
  const lanes = lanesOf(timeline, plan);
  const endMs = Math.max(timeline.latencyMs, ...lanes.flatMap(({ bars }) => bars.map(({ span }) => span.endMs)));
  const scale = endMs > 0 ? (width - labelWidth - 2 * margin) / endMs : 0;
  const x = (ms: number): string => (margin + labelWidth + ms * scale).toFixed(2);
  const bottom = top(lanes.length);
  const height = bottom + 44;
  const draw = ({ span, look, name }: Bar, row: number): string => {
    const barWidth = Math.max((span.endMs - span.startMs) * scale, 0.1);
    const y = top(row) + (rowHeight - barHeight) / 2;
    const tip = `<title>${escaped(`${name}: ${span.startMs.toFixed(3)} to ${span.endMs.toFixed(3)} ms`)}</title>`;
    const edge = barWidth > 3 ? ' stroke="#fff" stroke-width="0.6"' : '';
    const rectangle = `<rect x="${x(span.startMs)}" y="${y}" width="${barWidth.toFixed(2)}" height="${barHeight}" fill="${colours[look]}"${edge}>${tip}</rect>`;
    const text = look === 'stall' ? '' : shortened(name, barWidth);
    if (text === '') return rectangle;
    return `${rectangle}<text x="${x((span.startMs + span.endMs) / 2)}" y="${y + 16}" text-anchor="middle" fill="#fff" font-size="11">${escaped(text)}</text>`;
  };
  const headline = `${title}, ${plan.mode}: ${timeline.latencyMs.toFixed(2)} ms, of them ${timeline.stallMs.toFixed(2)} ms stalled; ${(plan.bytesGpu / 1e6).toFixed(1)} MB of weights in GPU memory`;
  const shown = (Object.keys(legend) as Look[]).filter((look) =>
    lanes.some(({ bars }) => bars.some((bar) => bar.look === look)),
  );
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    '<defs><pattern id="stall" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#f3e3e0"/><line x1="0" y1="0" x2="0" y2="6" stroke="#b5442e" stroke-width="3"/></pattern></defs>',
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<text x="${margin}" y="24" font-size="15" font-weight="bold">${escaped(headline)}</text>`,
    legendText(shown),
    ...ticks(endMs).flatMap((ms) => [
      `<line x1="${x(ms)}" y1="${topHeight}" x2="${x(ms)}" y2="${bottom}" stroke="#ddd"/>`,
      `<text x="${x(ms)}" y="${bottom + 16}" text-anchor="middle" fill="#444">${ms}</text>`,
    ]),
    `<text x="${width - margin}" y="${bottom + 34}" text-anchor="end" fill="#444">${escaped(`milliseconds, simulated on machine ${machine.name}; times of layers: ${source}`)}</text>`,
    ...lanes.map(({ name }, row) => `<text x="${margin}" y="${top(row) + 21}">${escaped(name)}</text>`),
    ...lanes.flatMap(({ bars }, row) => bars.map((bar) => draw(bar, row))),
    '</svg>',
  ];
  return `${parts.join('\n')}\n`;
}

function lanesOf({ layers }: Timeline, { primary, secondaries }: ColdStartPlan): Lane[] {
  const lanes: Lane[] = [];
  for (const gpu of [primary, ...secondaries]) {
    const own = layers.filter(({ link }) => link === gpu);
    lanes.push({
      name: `PCIe to GPU ${gpu}`,
      bars: own.flatMap(({ copy, name }) => (copy === undefined ? [] : [{ span: copy, look: 'copy', name } as const])),
    });
    if (gpu === primary) continue;
    lanes.push({
      name: `NVLink ${gpu} → ${primary}`,
      bars: own.flatMap(({ migration, name }) =>
        migration === undefined ? [] : [{ span: migration, look: 'migration', name } as const],
      ),
    });
  }
  const execution = layers.flatMap(({ name, execution: span, stallMs, fromHost }): Bar[] => {
    const bar: Bar = { span, look: fromHost ? 'host' : 'gpu', name };
    if (stallMs <= 0) return [bar];
    const stall: Bar = {
      span: { startMs: span.startMs - stallMs, endMs: span.startMs },
      look: 'stall',
      name: `waiting for ${name}`,
    };
    return [stall, bar];
  });
  lanes.push({ name: `GPU ${primary} executes`, bars: execution });
  return lanes;
}

/** As much of a layer's name as fits, from its end: 'encoder.layer.0.output.dense' is best known by 'dense'. */
function shortened(name: string, barWidth: number): string {
  const room = Math.floor((barWidth - 6) / 6.2);
  if (name.length <= room) return name;
  const last = name.slice(name.lastIndexOf('.') + 1);
  return last.length <= room ? last : '';
}

function legendText(looks: readonly Look[]): string {
  let left = margin;
  return looks
    .map((look) => {
      const swatch = `<rect x="${left}" y="40" width="12" height="12" fill="${colours[look]}"/>`;
      const label = `<text x="${left + 17}" y="50" fill="#444">${legend[look]}</text>`;
      left += 40 + legend[look].length * 6.5;
      return swatch + label;
    })
    .join('');
}
