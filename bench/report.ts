/** A benchmark's outcome as text for the terminal. Pure. */
import { formatBytes, formatMs } from '../src/cli/format.ts';
import { renderTable } from '../src/cli/table.ts';
import type { BenchmarkResult, Provenance } from './benchmark.ts';
import type { Machine } from './machine.ts';

/** One run as it is printed and kept in bench/results/<name>.json. */
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
