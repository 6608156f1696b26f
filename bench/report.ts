/** A benchmark's result as text for the terminal. Pure. */
import { formatBytes, formatMs } from '../src/tools/index.ts';
import { renderTable } from '../src/cli/table.ts';
import type { BenchmarkResult, Provenance } from './benchmark.ts';
import type { Machine } from './machine.ts';

/** One run, as printed and stored in bench/results/<name>.json. */
export interface BenchmarkRun extends BenchmarkResult {
  readonly name: string;
  readonly small: boolean;
  readonly seed: number;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  readonly tookMs: number;
  readonly machine: Machine;
}

export function renderRun(run: BenchmarkRun): string {
  const { machine } = run;
  const gpus = machine.gpus.length > 0 ? `, ${machine.gpus.join(', ')}` : '';
  const settings = Object.entries(run.settings).map(([name, value]) => `${name} ${value}`);
  const lines = [
    `${run.name}${run.small ? ' (small: these figures are not worth quoting)' : ''}`,
    `machine   ${machine.processor}, ${machine.coresUsable} cores, ${formatBytes(machine.memoryBytes)}${gpus}`,
    `software  Node ${machine.node}, ${machine.system}`,
    `settings  ${[...settings, `seed ${run.seed}`].join(', ')}`,
  ];
  for (const { title, provenance, columns, rows } of run.tables) {
    lines.push('', `${title} (${describeProvenance(provenance)})`, renderTable(columns, rows));
  }
  if (run.aims !== undefined && run.aims.length > 0) {
    lines.push('', ...run.aims.map(({ aim, met, reached }) => `${met ? 'met   ' : 'MISSED'}  ${aim}: ${reached}`));
  }
  for (const limit of run.limits) lines.push('', `Not shown: ${limit}`);
  lines.push('', `took ${formatMs(run.tookMs)}`);
  return lines.join('\n');
}

/** The same as a Markdown page. */
export function renderMarkdown(run: BenchmarkRun): string {
  const { machine } = run;
  const gpus = machine.gpus.length > 0 ? `, ${machine.gpus.join(', ')}` : '';
  const settings = Object.entries(run.settings).map(([name, value]) => `${name} ${value}`);
  const parts = [
    `# ${run.name}`,
    `Written by \`npm run bench -- ${run.name}\` on ${run.startedAt.slice(0, 10)}, not by hand: ${machine.processor}, ` +
      `${machine.coresUsable} cores, ${formatBytes(machine.memoryBytes)}${gpus}, Node ${machine.node}; ` +
      `${[...settings, `seed ${run.seed}`].join(', ')}.`,
  ];
  if (run.aims !== undefined && run.aims.length > 0) {
    const rows = run.aims.map(({ aim, met, reached }) => [aim, reached, met ? 'met' : '**missed**']);
    parts.push('## Aims', markdownTable(['Aim', 'Reached', ''], rows));
  }
  for (const { title, provenance, columns, rows } of run.tables) {
    parts.push(`## ${title}`, `Figures: ${describeProvenance(provenance)}.`, markdownTable(columns, rows));
  }
  if (run.limits.length > 0) parts.push('## What is not shown', run.limits.map((limit) => `- ${limit}`).join('\n'));
  return `${parts.join('\n\n')}\n`;
}

function markdownTable(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const rule = columns.map((title) => (title.startsWith('>') ? '---:' : '---'));
  const titles = columns.map((title) => title.replace(/^>/, ''));
  return [markdownLine(titles), `| ${rule.join(' | ')} |`, ...rows.map(markdownLine)].join('\n');
}

function markdownLine(cells: readonly string[]): string {
  return `| ${cells.map(markdownCell).join(' | ')} |`;
}

/** Escapes bars and angle brackets, which would end the cell or be taken for HTML. */
function markdownCell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

function describeProvenance(provenance: Provenance): string {
  switch (provenance.kind) {
    case 'measured':
      return 'measured on this machine';
    case 'simulated':
      return `simulated, machine preset ${provenance.preset}`;
    case 'estimated':
      return `estimated from ${provenance.from}`;
  }
}
