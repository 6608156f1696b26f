/** The work of the planners for large models. */
import { loadChrion, deepPlan, planPackrat } from '../src/plan/index.ts';
import type { PoolProfile } from '../src/profile/index.ts';
import { liveStack } from '../test/support/graph-profiles.ts';
import { lstmCells } from '../test/support/lstm-cells.ts';
import { type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { median } from './shared/statistics.ts';

export const benchmark: Benchmark = {
  name: 'planners',
  description: 'the CPU time of Chrion, DeepPlan and Packrat for large models',
  run,
};

interface Subject {
  readonly title: string;
  readonly msMax: number;
  readonly plan: () => unknown;
}

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const rounds = small ? 1 : 9;
  const rows: string[][] = [];
  const figures: Record<string, number> = {};
  const aims: NonNullable<BenchmarkResult['aims']>[number][] = [];
  for (const { title, msMax, plan } of await subjects(small ? 10 : 1)) {
    progress(title);
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const before = process.cpuUsage();
      plan();
      times.push(process.cpuUsage(before).user / 1000);
    }
    // The first rounds are compiled meanwhile, and cores share caches with others: the least is nearest to the work.
    const leastMs = Math.min(...times);
    rows.push([title, leastMs.toFixed(1), median(times).toFixed(1), Math.max(...times).toFixed(1)]);
    figures[`${title} ms`] = leastMs;
    aims.push({ aim: `${title}: under ${msMax} ms`, met: leastMs < msMax, reached: `${leastMs.toFixed(1)} ms` });
  }
  const ms = ['LEAST MS', 'MEDIAN MS', 'MOST MS'];
  return {
    settings: { rounds },
    tables: [
      {
        title: 'CPU time of one plan',
        provenance: { kind: 'measured' },
        columns: ['PLAN', ...ms.map((title) => `>${title}`)],
        rows,
      },
    ],
    figures,
    aims: small ? [] : aims,
    limits: ['profiles of real models, which have fewer operators'],
  };
}

/** @param fraction makes models smaller by this factor */
async function subjects(fraction: number): Promise<Subject[]> {
  const { planChrion, planVariants } = await loadChrion();
  const layers = 100 / fraction;
  const cells = lstmCells({ layers, batch: 8, ioSize: 64, sequence: 100 });
  const stack = liveStack({ layers, cells: 100, gpuMs: 0.05, cpuMs: 0.06, callMs: 0.05 });
  const smallStack = liveStack({ layers: 20 / fraction, cells: 100, gpuMs: 0.02, cpuMs: 0.15, callMs: 0.04 });
  const chain = Array.from({ length: 2000 / fraction }, (_, index) => ({
    name: `layer ${index}`,
    kind: 'Linear',
    bytes: 1e6,
    load: 0.2 + (index % 7) / 10,
    exec: 0.1,
    dha: 0.15 + (index % 5) / 10,
  }));
  const pool = poolProfile();
  // Plans of one profile share a search: each round plans a profile that is new.
  return [
    {
      title: `Chrion, ${layers * 100} operators, all numbers of cores`,
      msMax: 1000,
      plan: () => planChrion({ ...cells }, { alpha: 0.3 }),
    },
    {
      title: `Chrion, ${layers * 100} operators with call costs, one alpha`,
      msMax: 1000,
      plan: () => planChrion({ ...stack }, { alpha: 0.01 }),
    },
    {
      title: `Chrion's variants, ${2000 / fraction} operators`,
      msMax: 2000,
      plan: () => planVariants({ ...smallStack }),
    },
    { title: `DeepPlan, ${chain.length} layers`, msMax: 1000, plan: () => deepPlan({ layers: chain }) },
    {
      title: 'Packrat, 64 threads, a batch of 1024',
      msMax: 100,
      plan: () => planPackrat(pool, { threads: 64, batch: 1024 }),
    },
  ];
}

/** Made up, with batches of 1, 2, 4 to 1024. */
function poolProfile(): PoolProfile {
  const threads = Array.from({ length: 64 }, (_, index) => index + 1);
  const batches = Array.from({ length: 11 }, (_, index) => 2 ** index);
  const latency = threads.map((t) => batches.map((b) => 3 + (2 * b) / t ** 0.7 + 0.1 * t + ((t * 7 + b * 13) % 5)));
  return { unit: 'ms', threads, batches, latency };
}
