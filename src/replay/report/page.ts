/** The frame of a report's page: one file without external references. */
import { coloursCount, escapeHtml, plotBottom, plotTop, renderKey } from './chart.ts';

/**
 * Okabe and Ito's colours, which most colour-blind readers can distinguish; on dark ground the lighter of each pair.
 */
const colours = [
  ['#0072b2', '#56b4e9'],
  ['#d55e00', '#f0803c'],
  ['#009e73', '#2fc79b'],
  ['#a8437f', '#dd8fb9'],
  ['#b07d00', '#e6b93c'],
  ['#5b5b5b', '#b5b5b5'],
] as const;

const style = `
:root { color-scheme: light dark; --ground: #fff; --raised: #f6f7f8; --text: #1c2024; --quiet: #5d666f; --line: #dde1e5; --rule: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181b; --raised: #1e2226; --text: #e8eaec; --quiet: #9aa4ad; --line: #33393f; --rule: #ff8a80; }
}
${colours.map(([light], index) => `:root { --s${index}: ${light}; }`).join('\n')}
@media (prefers-color-scheme: dark) {
${colours.map(([, dark], index) => `  :root { --s${index}: ${dark}; }`).join('\n')}
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1360px; background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 32px 0 8px; }
p.lead { color: var(--quiet); margin: 0 0 16px; }
.badge { display: inline-block; padding: 1px 8px; border: 1px solid currentcolor; border-radius: 10px; font-size: 12px; vertical-align: 4px; }
dl.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px; margin: 0; }
dl.figures div { background: var(--raised); border-radius: 6px; padding: 8px 12px; }
dl.figures dt { color: var(--quiet); font-size: 13px; }
dl.figures dd { margin: 0; font-size: 20px; font-variant-numeric: tabular-nums; }
p.warning { border-left: 4px solid var(--rule); padding: 2px 12px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0; padding: 0; list-style: none; }
svg.key { display: inline-block; width: 26px; height: 12px; margin-right: 6px; vertical-align: middle; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 16px; }
figure { margin: 0; position: relative; background: var(--raised); border-radius: 6px; padding: 10px 12px 4px; }
figcaption { font-weight: 600; margin-bottom: 2px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--line); } .axis, .tick { stroke: var(--quiet); }
path.rule { stroke: var(--rule); stroke-dasharray: 5 4; } text.rule { fill: var(--rule); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.cursor { stroke: var(--quiet); stroke-dasharray: 2 2; }
${Array.from({ length: coloursCount }, (_, index) => `.line.s${index} { stroke: var(--s${index}); } .mark.s${index} { fill: var(--s${index}); }`).join('\n')}
.tip { position: absolute; top: 34px; pointer-events: none; background: var(--ground); border: 1px solid var(--line); border-radius: 4px; padding: 4px 8px; font-size: 12px; white-space: nowrap; font-variant-numeric: tabular-nums; z-index: 1; }
.tip i { display: inline-block; width: 9px; height: 9px; margin-right: 5px; background: var(--c); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--quiet); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
td.text { text-align: left; white-space: normal; }
details summary { cursor: pointer; margin: 24px 0 8px; font-weight: 600; }
`;

/** Shows the values under the pointer. Without it all plots are still visible. */
const script = `
for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const chart = JSON.parse(figure.dataset.chart), svg = figure.querySelector('svg');
  const cursor = svg.querySelector('.cursor'), tip = document.createElement('div');
  tip.className = 'tip';
  figure.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const row = chart.rows.reduce((best, each) => Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best);
    cursor.setAttribute('d', 'M' + row[0] + ' ${plotTop}V${plotBottom}');
    tip.replaceChildren(chart.x + ' ' + row[1]);
    chart.names.forEach((name, index) => {
      if (row[2][index] == null) return;
      const line = document.createElement('div'), key = document.createElement('i');
      key.style.setProperty('--c', 'var(--s' + (index % ${coloursCount}) + ')');
      line.append(key, (name ? name + ' ' : '') + row[2][index]);
      tip.append(line);
    });
    figure.append(tip);
    const x = (row[0] / svg.viewBox.baseVal.width) * box.width;
    tip.style.left = x + 24 + tip.offsetWidth > box.width ? (x - tip.offsetWidth) + 'px' : (x + 24) + 'px';
  });
  figure.addEventListener('pointerleave', () => { cursor.setAttribute('d', ''); tip.remove(); });
}
`;

export function renderPage(title: string, body: readonly string[]): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
</head>
<body>
${body.join('\n')}
<script>${script}</script>
</body>
</html>
`;
}

/** `marked`: with the shapes that mark the points. */
export function renderLegend(names: readonly string[], marked = false): string {
  if (names.length < 2) return '';
  const items = names.map((name, index) => `<li>${renderKey(index, marked)}${escapeHtml(name)}</li>`);
  return `<ul class="legend">${items.join('')}</ul>`;
}

/** @param of the report, where there are several */
export const renderWarnings = (warnings: readonly string[] = [], of?: string): string[] =>
  warnings.map(
    (warning) => `<p class="warning"><strong>${escapeHtml(of ?? 'Warning')}</strong> ${escapeHtml(warning)}</p>`,
  );

/** Cells are text, which is escaped here. */
export function renderHtmlTable(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const head = titles.map((title) => `<th>${escapeHtml(title.replace(/^>/, ''))}</th>`).join('');
  const body = rows.map((row) => `<tr>${row.map((cell) => `<td>${escapeHtml(cell)}</td>`).join('')}</tr>`);
  return `<div class="scroll"><table><thead><tr>${head}</tr></thead><tbody>${body.join('\n')}</tbody></table></div>`;
}

export const folded = (title: string, content: string): string =>
  `<details><summary>${escapeHtml(title)}</summary>${content}</details>`;

/** @param of the report, where there are several */
export function settingsOf(settings: Readonly<Record<string, unknown>>, of = ''): string {
  const rows = Object.entries(settings).map(([name, value]) => [name, String(value)]);
  return folded(`Settings${of}`, renderHtmlTable(['', ''], rows));
}
