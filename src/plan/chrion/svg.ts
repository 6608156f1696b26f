import { escaped, ticks } from '../picture.ts';
import type { ChrionPlan } from './plan.ts';

export interface TimelineSvgOptions {
  /** What the picture is of, such as the name of the profile. */
  readonly title: string;
  /** Width of the picture in pixels. Default 1200. */
  readonly width?: number;
}

const colours = { gpu: '#2f7d4f', cpu: '#3a6ea5', call: '#b9cfe6', 'to-gpu': '#e08e2b', 'to-cpu': '#b5442e' } as const;
const legend = {
  gpu: 'on the GPU',
  cpu: 'on a core',
  call: 'a call beside its operators',
  'to-gpu': 'copy to the GPU',
  'to-cpu': 'copy to the CPU',
} as const;
const rowHeight = 30;
const barHeight = 22;
const labelWidth = 72;
const topHeight = 64;
const margin = 16;

/**
 * A plan as a picture: one row for the GPU, with its copies, and one for each core, over milliseconds. Each bar carries
 * its operator's name and times for the pointer; operators of one call stand on one band. The times are predictions out of the profile, and the picture says so.
 */
export function renderChrionTimeline(plan: ChrionPlan, { title, width = 1200 }: TimelineSvgOptions): string {
  const rows = ['GPU', ...Array.from({ length: plan.cores }, (_, index) => `core ${index + 1}`)];
  const height = topHeight + rows.length * rowHeight + 40;
  const endMs = Math.max(plan.latencyMs, ...plan.copies.map((copy) => copy.endMs));
  const scale = endMs > 0 ? (width - labelWidth - 2 * margin) / endMs : 0;
  const x = (ms: number): string => (margin + labelWidth + ms * scale).toFixed(2);
  const top = (row: number): number => topHeight + row * rowHeight;
  const bar = (row: number, kind: keyof typeof colours, startMs: number, endsMs: number, name: string): string => {
    const barWidth = Math.max((endsMs - startMs) * scale, 0.1);
    const y = top(row) + (rowHeight - barHeight) / 2;
    const tip = `<title>${escaped(`${name}: ${startMs.toFixed(3)} to ${endsMs.toFixed(3)} ms`)}</title>`;
    const rectangle = `<rect x="${x(startMs)}" y="${y}" width="${barWidth.toFixed(2)}" height="${barHeight}" fill="${colours[kind]}" stroke="#fff" stroke-width="${barWidth > 3 ? 0.6 : 0}">${tip}</rect>`;
    const fits = name.length * 6.2 + 6 < barWidth;
    if (!fits) return rectangle;
    return `${rectangle}<text x="${x((startMs + endsMs) / 2)}" y="${y + 15}" text-anchor="middle" fill="#fff" font-size="11">${escaped(name)}</text>`;
  };
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<text x="${margin}" y="24" font-size="15" font-weight="bold">${escaped(`${title}: ${headline(plan)}`)}</text>`,
    legendText(),
    ...ticks(endMs).flatMap((ms) => [
      `<line x1="${x(ms)}" y1="${topHeight}" x2="${x(ms)}" y2="${top(rows.length)}" stroke="#ddd"/>`,
      `<text x="${x(ms)}" y="${top(rows.length) + 16}" text-anchor="middle" fill="#444">${ms}</text>`,
    ]),
    `<text x="${width - margin}" y="${top(rows.length) + 32}" text-anchor="end" fill="#444">milliseconds, predicted from the profile</text>`,
    ...rows.map((name, row) => `<text x="${margin}" y="${top(row) + 19}">${name}</text>`),
    // Behind the operators: what is left to see of a call is what it costs beside them.
    ...plan.segments.map(({ core, startMs, endMs: callEndMs }) => {
      const y = top(core) + (rowHeight - barHeight) / 2;
      const callWidth = ((callEndMs - startMs) * scale).toFixed(2);
      return `<rect x="${x(startMs)}" y="${y}" width="${callWidth}" height="${barHeight}" fill="${colours.call}"/>`;
    }),
    ...plan.operators.map((operator) =>
      bar(operator.core ?? 0, operator.device, operator.startMs, operator.endMs, operator.name),
    ),
    ...plan.copies.map(({ from, to, direction, startMs, endMs: copyEndMs }) =>
      bar(0, direction, startMs, copyEndMs, `${from} → ${to}`),
    ),
    '</svg>',
  ];
  return `${parts.join('\n')}\n`;
}

function headline({ latencyMs, gpuBytes, cores, segments, operators }: ChrionPlan): string {
  const calls = `${cores} ${cores === 1 ? 'core' : 'cores'} in ${segments.length} ${segments.length === 1 ? 'call' : 'calls'}`;
  const withGpu = cores === 0 ? 'the GPU alone' : `the GPU and ${calls}`;
  const where = operators.some(({ device }) => device === 'gpu') ? withGpu : calls;
  return `${latencyMs.toFixed(2)} ms on ${where}, ${memoryText(gpuBytes)}`;
}

function memoryText(bytes: number): string {
  if (bytes === 0) return 'no GPU memory';
  return `${bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`} of GPU memory`;
}

function legendText(): string {
  let left = margin;
  return Object.entries(legend)
    .map(([kind, text]) => {
      const swatch = `<rect x="${left}" y="38" width="12" height="12" fill="${colours[kind as keyof typeof colours]}"/>`;
      const label = `<text x="${left + 17}" y="48" fill="#444">${text}</text>`;
      left += 40 + text.length * 6.5;
      return swatch + label;
    })
    .join('');
}
