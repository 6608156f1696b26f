/** The papers' figures beside ours, and whether each acceptance criterion holds. */
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
import { deepplanPart } from './papers/a.ts';
import { packratPart } from './papers/c.ts';
import { serfPart } from './papers/d.ts';
import { chrionPart } from './papers/e.ts';
import type { PaperPart } from './papers/part.ts';

export const benchmark: Benchmark = {
  name: 'papers',
  description: "do the planners give the papers' own figures: DeepPlan, Packrat, SERF, Chrion",
  run: async (options) => await Promise.resolve(runAll(options)),
};

function runAll({ small, seed, progress }: BenchmarkOptions): BenchmarkResult {
  const requests = small ? 2000 : 1_000_000;
  const parts: PaperPart[] = [];
  for (const [name, part] of [
    ['DeepPlan', deepplanPart],
    ['Packrat', packratPart],
    ['SERF', () => serfPart({ requests, seed })],
    ['Chrion', chrionPart],
  ] as const) {
    progress(name);
    parts.push(part());
  }
  return {
    settings: { simulatedRequests: requests },
    tables: parts.flatMap(({ tables }) => tables),
    aims: parts.flatMap(({ aims }) => aims),
    figures: Object.fromEntries(parts.flatMap(({ figures }) => Object.entries(figures))),
    limits: parts.flatMap(({ limits }) => limits),
  };
}
