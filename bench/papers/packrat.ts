/** Part C: Packrat's published optimizer tables, and the configurations of its Table 2. */
import { planPackrat, type PackratPlan } from '../../src/plan/index.ts';
import { packratTable } from '../../test/support/packrat-table.ts';
import { parsePoolProfile, type PoolProfile } from '../../src/profile/index.ts';
import bert from '../../test/reference/packrat-bert.json' with { type: 'json' };
import resnet from '../../test/reference/packrat-resnet.json' with { type: 'json' };
import { tableOf, type BenchmarkTable } from '../benchmark.ts';
import { cell, equalCell, onlyMeasurable, shape, type Cell } from './cells.ts';
import { difference, type PaperPart } from './part.ts';

interface Model {
  readonly name: string;
  readonly profile: PoolProfile;
  readonly check: readonly (readonly [threads: number, batch: number, latencyMs: number | null])[];
}

const models: readonly Model[] = [
  { name: 'BERT', profile: parsePoolProfile(bert), check: bert.check as [number, number, number | null][] },
  { name: 'ResNet-50', profile: parsePoolProfile(resnet), check: resnet.check as [number, number, number | null][] },
];

/** The authors published the whole table for T = 18 threads and B = 1024 items. */
const published = { threads: 18, batch: 1024 };

export function packratPart(): PaperPart {
  const checked = models.map(checkModel);
  const worstTableMs = Math.max(...checked.map(({ tableMs }) => tableMs));
  const planMs = largePlanMs();
  const table2 = table2Rows();
  const exact = table2.filter(({ paperMs, oursMs }) => Math.abs(paperMs - oursMs) < 1e-6).length;
  const equal = checked.reduce((sum, { equal: count }) => sum + count, 0);
  const points = checked.reduce((sum, { points: count }) => sum + count, 0);
  return {
    cells: packratCells(table2),
    tables: [table2Table(table2)],
    aims: [
      { aim: 'Packrat: every check point exact', met: equal === points, reached: `${equal} of ${points}` },
      {
        aim: 'Packrat: Table 2 latencies within 1e-6 ms in 15 of 16 rows',
        met: exact >= 15,
        reached: `${exact} of 16`,
      },
      {
        aim: 'Packrat: whole table of T=18, B=1024 under 1 s',
        met: worstTableMs < 1000,
        reached: `${worstTableMs.toFixed(1)} ms`,
      },
      { aim: 'Packrat: plan for T=64, B=1024 under 100 ms', met: planMs < 100, reached: `${planMs.toFixed(1)} ms` },
    ],
    figures: {
      packratPointsEqual: equal,
      packratTable2RowsEqual: exact,
      packratTableMs: worstTableMs,
      packratPlanMs: planMs,
    },
    limits: [
      'Packrat: speed-ups over one instance with all threads cannot be computed again, since the published tables bound the latency of such an instance from above only.',
    ],
  };
}

function packratCells(table2: readonly Table2Row[]): Cell[] {
  const resnetThinMs = latencyAt(models[1]!, 1, 16);
  const whyTable = 'the published table has this latency from another run than the text';
  const whyRun =
    'the speed of PyTorch on the authors’ machine; the published tables bound a fat instance from above only';
  return [
    ...table2.map(
      ({ threads, batch, paper, paperMs, ours, oursMs }) =>
      cell('Table 2', `T=${threads}, B=${batch}: ${paper} against our ${ours}, ms`, { paper: paperMs, ours: oursMs, digits: 1, within: 0.001, isLessBetter: true, why: paper === ours ? '' : 'another configuration of the same latency, or a faster one by the published table' }), // prettier-ignore
    ),
    cell('Appendix A', 'ResNet-50, T=16, B=256: one thin instance <1,1,16>, ms', { paper: 1224, ours: resnetThinMs, digits: 0, within: 0.05, why: whyTable }), // prettier-ignore
    equalCell(
      'Appendix A',
      'ResNet-50, T=16, B=256: configuration',
      '<16,1,16>',
      knownPlan(resnet, models[1]!, 16, 256).text,
    ),
    cell('Appendix A', 'expected reduction over the fat instance of 2664 ms', { paper: 54, ours: 100 * (1 - 1224 / 2664), digits: 0, unit: '%', within: 0.01 }), // prettier-ignore
    cell('Appendix A', 'reduction of 16 thin instances at once, 1600 ms', { paper: 40, ours: 100 * (1 - 1600 / 2664), digits: 0, unit: '%', within: 0.01 }), // prettier-ignore
    onlyMeasurable(
      'Appendix A',
      'fat instance 2664 ms, 16 thin at once 1600 ms, beside FPGen 1397 ms, MemGen 1434 ms',
      '-',
      whyRun,
    ),
    ...models.map((model) => {
      const gains = [16, 32, 64, 128, 256, 512, 1024].map(
        (batch) => latencyAt(model, 1, batch / 16) / latencyAt(model, 16, batch),
      );
      return cell('section 5.1.1', `${model.name}: over 16 single-threaded instances, most over B >= 16`, { paper: [1, 1.75], ours: Math.max(...gains), within: 0.02 }); // prettier-ignore
    }),
    onlyMeasurable('section 5.1.1', 'GPT-2: up to 3.2 times 16 single-threaded instances; Inception 1.02 to 1.75', '-', 'their tables are not among the references of this project'), // prettier-ignore
    onlyMeasurable(
      'Figure 4',
      'mean speed-up over a fat instance: ResNet-50, Inception, GPT-2, BERT',
      '1.53, 1.52, 1.18, 1.13',
      whyRun,
    ),
    onlyMeasurable('Figure 5', 'speed-up in TorchServe: mean and most', '1.43 to 1.83; 1.72 to 2.09', whyRun),
    onlyMeasurable('Figure 6', 'a change from B=8 to B=64: seconds; latency after it', '5 s; 1.54 times', 'live: see bench/results/pools.md, by its machine and date'), // prettier-ignore
    shape('Figure 1', 'more threads help less and less', 'falling returns', `BERT, B=8, T=1, 4, 16: ${[1, 4, 16].map((threads) => latencyAt(models[0]!, threads, 8).toFixed(0)).join(', ')} ms`), // prettier-ignore
    onlyMeasurable('Figures 7 to 10', 'memory latency under load, other machines', 'bars', whyRun),
    onlyMeasurable('Tables 1 and 3', 'hardware lists', '-', 'no result'),
  ];
}

/** A cell of the optimizer's published table, which has every number of threads; all of them are used. */
function latencyAt({ profile }: Model, threads: number, batch: number): number {
  return packratTable(profile, { threads, batch })[threads]?.[batch] ?? Number.NaN;
}

interface Checked {
  readonly points: number;
  readonly equal: number;
  readonly tableMs: number;
}

function checkModel({ profile, check }: Model): Checked {
  const startedMs = performance.now();
  packratTable(profile, published);
  const tableMs = performance.now() - startedMs;
  const answers = check.map(([threads, batch]) =>
    latencyOf(planPackrat(profile, { threads, batch, idleThreads: false })),
  );
  return {
    points: check.length,
    equal: check.filter(([, , ms], index) => answers[index] === ms).length,
    tableMs,
  };
}

interface Table2Row {
  readonly threads: number;
  readonly batch: number;
  readonly paper: string;
  readonly paperMs: number;
  readonly ours: string;
  readonly oursMs: number;
}

/**
 * Our plans use only cells that were certainly measured. The published table bounds the others by what several
 * instances reach together; with those, every batch that is a power of two would be one instance with all threads.
 */
function table2Rows(): Table2Row[] {
  const [model] = models as [Model];
  return (bert.paperTable2 as [number, number, [number, number, number][], number, number][]).map(
    ([threads, batch, groups, paperMs]) => {
      const { text, latencyMs } = knownPlan(bert, model, threads, batch);
      const paper = groups.map((group) => `<${group.join(',')}>`).join(', ');
      return { threads, batch, paper, paperMs, ours: text, oursMs: latencyMs ?? Number.NaN };
    },
  );
}

/** @param published names the cells that were certainly measured */
function knownPlan(
  published: { readonly irreducible: readonly (readonly number[])[] },
  { profile: all }: Model,
  threads: number,
  batch: number,
) {
  // prettier-ignore
  const known = new Set(published.irreducible.map(([t, b]) => `${t} ${b}`));
  const latency = all.threads.map((t, row) =>
    all.batches.map((b, column) => (known.has(`${t} ${b}`) ? (all.latency[row]?.[column] ?? null) : null)),
  );
  const plan = planPackrat({ ...all, latency }, { threads, batch });
  return { text: plan.state === 'planned' ? groupsText(plan) : 'infeasible', latencyMs: latencyOf(plan) };
}

function table2Table(rows: readonly Table2Row[]): BenchmarkTable {
  return tableOf(
    "Packrat: BERT's best <instances, threads, batch> (Table 2)",
    rows,
    [
      ['>T', ({ threads }) => String(threads)],
      ['>B', ({ batch }) => String(batch)],
      ['Paper', ({ paper }) => paper],
      ['>Paper ms', ({ paperMs }) => paperMs.toFixed(3)],
      ['Ours, idle threads allowed', ({ ours }) => ours],
      ['>Ours ms', ({ oursMs }) => oursMs.toFixed(3)],
      ['>Difference', ({ paperMs, oursMs }) => difference(oursMs, paperMs)],
    ],
    { kind: 'estimated', from: "the paper's published measurements, one instance at a time" },
  );
}

function largePlanMs(): number {
  const threads = Array.from({ length: 64 }, (_, index) => index + 1);
  const batches = Array.from({ length: 11 }, (_, index) => 2 ** index);
  const latency = threads.map((t) => batches.map((b) => 3 + (2 * b) / t ** 0.7 + 0.1 * t));
  const profile: PoolProfile = { unit: 'ms', threads, batches, latency };
  const times = [0, 1, 2].map(() => {
    const startedMs = performance.now();
    planPackrat(profile, { threads: 64, batch: 1024 });
    return performance.now() - startedMs;
  });
  return Math.max(...times);
}

function latencyOf(plan: PackratPlan): number | null {
  return plan.state === 'planned' ? plan.latencyMs : null;
}

function groupsText({ groups }: Extract<PackratPlan, { state: 'planned' }>): string {
  return groups.map(({ instances, threads, batch }) => `<${instances},${threads},${batch}>`).join(', ');
}
