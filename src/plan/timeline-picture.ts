/** A timeline as an SVG picture: one row for each busy resource, one bar for each span, in milliseconds. */

export interface TimelineBar<Look extends string> {
  readonly startMs: number;
  readonly endMs: number;
  readonly look: Look;
  /** Tooltip, and label of the bar if it fits. Left out: the bar is only a background. */
  readonly name?: string;
}

export interface TimelineLane<Look extends string> {
  readonly name: string;
  readonly bars: readonly TimelineBar<Look>[];
}

export interface TimelinePicture<Look extends string> {
  readonly headline: string;
  /** Text below the axis, after "milliseconds, ": where the times come from. */
  readonly source: string;
  readonly lanes: readonly TimelineLane<Look>[];
  /** Colour and meaning of each look. The legend shows those that occur. */
  readonly looks: Readonly<Record<Look, { readonly fill: string; readonly means: string }>>;
  /** In pixels. Default 1200. */
  readonly width?: number | undefined;
}

const rowHeight = 32;
const barHeight = 23;
const labelWidth = 110;
const topHeight = 68;
const margin = 16;
/** Width of a letter on a bar. */
const letterWidth = 6.2;
/** A fill for waiting time. */
export const hatched = 'url(#stall)';

export function renderTimeline<Look extends string>(picture: TimelinePicture<Look>): string {
  const { headline, source, lanes, looks, width = 1200 } = picture;
  const endMs = Math.max(0, ...lanes.flatMap(({ bars }) => bars.map((bar) => bar.endMs)));
  const scale = endMs > 0 ? (width - labelWidth - 2 * margin) / endMs : 0;
  const x = (ms: number): string => (margin + labelWidth + ms * scale).toFixed(2);
  const bottom = topHeight + lanes.length * rowHeight;
  const height = bottom + 44;
  const draw = ({ startMs, endMs: barEndMs, look, name }: TimelineBar<Look>, row: number): string => {
    const barWidth = Math.max((barEndMs - startMs) * scale, 0.1);
    const y = topHeight + row * rowHeight + (rowHeight - barHeight) / 2;
    const { fill } = looks[look];
    const shape = `<rect x="${x(startMs)}" y="${y}" width="${barWidth.toFixed(2)}" height="${barHeight}" fill="${fill}"`;
    if (name === undefined) return `${shape}/>`;
    const edge = barWidth > 3 ? ' stroke="#fff" stroke-width="0.6"' : '';
    const tip = `<title>${escapeXml(`${name}: ${startMs.toFixed(3)} to ${barEndMs.toFixed(3)} ms`)}</title>`;
    const text = fill === hatched ? '' : shortened(name, barWidth);
    const label = `<text x="${x((startMs + barEndMs) / 2)}" y="${y + 16}" text-anchor="middle" fill="#fff" font-size="11">${escapeXml(text)}</text>`;
    return `${shape}${edge}>${tip}</rect>${text === '' ? '' : label}`;
  };
  const shown = (Object.keys(looks) as Look[]).filter((look) =>
    lanes.some(({ bars }) => bars.some((bar) => bar.look === look)),
  );
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    '<defs><pattern id="stall" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#f3e3e0"/><line x1="0" y1="0" x2="0" y2="6" stroke="#b5442e" stroke-width="3"/></pattern></defs>',
    `<rect width="${width}" height="${height}" fill="#fff"/>`,
    `<text x="${margin}" y="24" font-size="15" font-weight="bold">${escapeXml(headline)}</text>`,
    legendText(shown.map((look) => looks[look])),
    ...ticks(endMs).flatMap((ms) => [
      `<line x1="${x(ms)}" y1="${topHeight}" x2="${x(ms)}" y2="${bottom}" stroke="#ddd"/>`,
      `<text x="${x(ms)}" y="${bottom + 16}" text-anchor="middle" fill="#444">${ms}</text>`,
    ]),
    `<text x="${width - margin}" y="${bottom + 34}" text-anchor="end" fill="#444">milliseconds, ${escapeXml(source)}</text>`,
    ...lanes.map(
      ({ name }, row) => `<text x="${margin}" y="${topHeight + row * rowHeight + 20}">${escapeXml(name)}</text>`,
    ),
    ...lanes.flatMap(({ bars }, row) => bars.map((bar) => draw(bar, row))),
    '</svg>',
  ];
  return `${parts.join('\n')}\n`;
}

/** Pictures of one width, one below the other. */
export function stackedPictures(pictures: readonly string[], width = 1200): string {
  let top = 0;
  const placed = pictures.map((picture) => {
    const at = top;
    top += Number(/ height="(\d+)"/.exec(picture)?.[1] ?? 0);
    return picture.replace('<svg ', `<svg y="${at}" `).trimEnd();
  });
  const opening = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" viewBox="0 0 ${width} ${top}">`;
  return [opening, ...placed, '</svg>\n'].join('\n');
}

/** As much of a name as fits, from its end: 'encoder.layer.0.output.dense' is best known by 'dense'. */
function shortened(name: string, barWidth: number): string {
  const room = Math.floor((barWidth - 6) / letterWidth);
  const last = name.slice(name.lastIndexOf('.') + 1);
  return [name, last].find(({ length }) => length <= room) ?? '';
}

function legendText(looks: readonly { readonly fill: string; readonly means: string }[]): string {
  let left = margin;
  return looks
    .map(({ fill, means }) => {
      const swatch = `<rect x="${left}" y="40" width="12" height="12" fill="${fill}"/>`;
      const label = `<text x="${left + 17}" y="50" fill="#444">${means}</text>`;
      left += 40 + means.length * 6.5;
      return swatch + label;
    })
    .join('');
}

/** Round steps of 1, 2 or 5 times a power of ten, six to fifteen of them. */
function ticks(endMs: number): number[] {
  if (!(endMs > 0)) return [0];
  const power = 10 ** Math.floor(Math.log10(endMs / 6));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => endMs / candidate <= 15) ?? 10 * power;
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: Math.floor(endMs / step) + 1 }, (_, index) => Number((index * step).toFixed(decimals)));
}

function escapeXml(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
  // XML allows no control characters.
  return text.replaceAll(/[&<>"]/g, (character) => entities[character] ?? '').replaceAll(/\p{Cc}/gu, ' ');
}
