/** Every table and figure of the four papers beside ours, and whether each acceptance criterion holds. */
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
import { cellTable } from './papers/cells.ts';
import { chrionPart } from './papers/chrion.ts';
import { deepplanPart } from './papers/deepplan.ts';
import { packratPart } from './papers/packrat.ts';
import { serfPart } from './papers/serf.ts';
import { servingParts } from './papers/serving-figures.ts';

export const benchmark: Benchmark = {
  name: 'papers',
  description: "do planners, scheduler and simulator give the papers' figures: DeepPlan, Packrat, SERF, Chrion",
  run,
};

/** Of the computed cells. */
const withinLeast = 0.9;

async function run(options: BenchmarkOptions): Promise<BenchmarkResult> {
  const { small, seed, progress } = options;
  const requests = small ? 2000 : 1_000_000;
  const serving = await servingParts(options);
  progress('single starts');
  const papers = [
    { name: 'DeepPlan', parts: [deepplanPart(), serving.deepplan] },
    { name: 'Packrat', parts: [packratPart()] },
    { name: 'SERF', parts: [serfPart({ requests, seed })] },
    { name: 'Chrion', parts: [chrionPart(), serving.chrion] },
  ];
  const parts = papers.flatMap((paper) => paper.parts);
  const computed = parts.flatMap(({ cells }) => cells).filter(({ word }) => word === 'computed');
  const within = computed.filter(({ met }) => met === true);
  const withoutReason = computed.filter(({ met, why }) => met !== true && why === '');
  return {
    settings: { simulatedRequests: requests, ...serving.settings },
    tables: [
      ...papers.map((paper) => cellTable(paper.name, paper.parts.flatMap(({ cells }) => cells))), // prettier-ignore
      ...parts.flatMap(({ tables }) => tables),
    ],
    aims: [
      {
        aim: `${withinLeast * 100}% of the computed cells within their aim`,
        met: within.length >= withinLeast * computed.length,
        reached: `${within.length} of ${computed.length}`,
      },
      {
        aim: 'every other computed cell has its reason',
        met: withoutReason.length === 0,
        reached: withoutReason.map(({ where, what }) => `${where}: ${what}`).join('; ') || 'all',
      },
      ...parts.flatMap(({ aims }) => aims),
    ],
    figures: {
      computedCells: computed.length,
      computedCellsWithin: within.length,
      ...Object.fromEntries(parts.flatMap(({ figures }) => Object.entries(figures))),
    },
    limits: parts.flatMap(({ limits }) => limits),
  };
}
