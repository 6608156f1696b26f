/**
 * Density: how many BERT-Base functions p3.8xlarge serves at 100 requests per second with a p99 within 100 ms, of which
 * each shares the first layers with all others, or none.
 */
import { OfferCache, poissonTrace } from '../src/replay/index.ts';
import { policies } from '../src/schedule/index.ts';
import { given } from '../src/tools/index.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { p3 } from './hours/machines.ts';
import { playHour } from './hours/play.ts';
import type { HoursRow } from './hours/row.ts';
import type { HoursSystem } from './hours/systems.ts';

export const benchmark: Benchmark = {
  name: 'density',
  description:
    'how many functions does a machine serve within an SLO, in 32 bits, coded, and in 16 bits, with what reserve, sharing how much?',
  run,
};

interface Scale {
  readonly requests: number;
  readonly warmup: number;
  /** The least of the search; the most is what host memory holds, or `functionsMax`. */
  readonly from: number;
  readonly step: number;
}

const fullScale: Scale = { requests: 10_000, warmup: 2000, from: 150, step: 10 };
const smallScale: Scale = { requests: 100, warmup: 30, from: 150, step: 240 };

/**
 * What our engine reserves of a V100's 16,944,988,160 bytes. A CUDA context takes about 512 MiB (an assumption: not
 * measured on a V100). The engine takes 92% of the rest as its one block (src/gpu/engine/device-memory.ts), and the
 * host gives the scheduler 85% of that for weights (src/host/gpu/gpu-host.ts): the remainder is for activations,
 * workspaces, constants and staging. The 83 MiB that every simulated GPU keeps for activations are subtracted again,
 * since they are part of that remainder.
 */
const gpuBytes = p3.gpus[0]!.memoryBytes;
const engineReserveBytes = Math.round(gpuBytes - (gpuBytes - 512 * 2 ** 20) * 0.92 * 0.85 - 83 * 2 ** 20);

/** Functions that share all their layers would need no end. */
const functionsMax = 2000;

type Given = Pick<HoursRow, 'reserveBytes' | 'weightBits' | 'coding' | 'sharedShare'>;

interface Question {
  readonly weights: string;
  readonly reserve: string;
  readonly shared: string;
  readonly system: Given;
  /** At least so many functions, where there is an aim. */
  readonly aim?: number;
}

const ours = `our engine's, ${(engineReserveBytes / 2 ** 30).toFixed(2)} GiB`;
const paper = "the paper's, 5.5 GiB";
const questions: readonly Question[] = [
  { weights: '32 bits', reserve: paper, shared: 'nothing', system: {}, aim: 290 },
  { weights: '32 bits', reserve: ours, shared: 'nothing', system: { reserveBytes: engineReserveBytes } },
  { weights: '32 bits', reserve: paper, shared: '25%', system: { sharedShare: 0.25 }, aim: 500 },
  { weights: '32 bits, coded', reserve: paper, shared: 'nothing', system: { coding: true }, aim: 360 },
  {
    weights: '32 bits, coded',
    reserve: ours,
    shared: 'nothing',
    system: { coding: true, reserveBytes: engineReserveBytes },
    aim: 430,
  },
  { weights: '16 bits', reserve: paper, shared: 'nothing', system: { weightBits: 16 }, aim: 800 },
  {
    weights: '16 bits',
    reserve: ours,
    shared: 'nothing',
    system: { weightBits: 16, reserveBytes: engineReserveBytes },
  },
];

interface Density {
  /** The largest step with a p99, averaged over the seeds, within the bound. */
  readonly functions: number;
  readonly p99Ms: number;
  /** What ends it: the next step's p99, or that host memory holds no more. */
  readonly endedBy: 'p99' | 'host memory' | 'the search';
}

const p99MaxMs = 100;
const best: HoursSystem = { name: 'best', mode: 'interleave', policy: policies.best, knowsFuture: false };

async function run({ small, seed, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const scale = small ? smallScale : fullScale;
  const seeds = Array.from({ length: small ? 1 : 5 }, (_, step) => seed + step);
  const found: { readonly question: Question; readonly density: Density }[] = [];
  // A small run has one of each kind: shared, coded, in 16 bits.
  for (const question of questions.filter((_, at) => !small || (at > 0 && at % 2 === 0))) {
    progress(nameOf(question));
    found.push({ question, density: await densityOf(scale, question.system, seeds) });
  }
  return {
    settings: { requests: scale.requests, warmupRequests: scale.warmup, seeds: seeds.length },
    tables: [
      tableOf(
        'Density under best: BERT-Base functions at 100/s on p3.8xlarge with a p99 of at most 100 ms',
        found,
        [
          ['WEIGHTS', ({ question: { weights } }) => weights],
          ['RESERVE OF EACH GPU', ({ question: { reserve } }) => reserve],
          ['SHARED', ({ question: { shared } }) => shared],
          ['>FUNCTIONS', ({ density: { functions } }) => String(functions)],
          ['>P99 MS', ({ density: { p99Ms } }) => p99Ms.toFixed(1)],
          ['ENDED BY', ({ density: { endedBy } }) => endedBy],
        ],
        { kind: 'simulated', preset: 'p3.8xlarge' },
      ),
    ],
    figures: Object.fromEntries(found.map(({ question, density }) => [nameOf(question), density.functions])),
    aims: small
      ? []
      : found.flatMap(({ question, density: { functions } }) =>
          question.aim === undefined
            ? []
            : [
                {
                  aim: `${nameOf(question)}: at least ${question.aim} functions`,
                  met: functions >= question.aim,
                  reached: String(functions),
                },
              ],
        ),
    limits: [
      'anything measured on GPUs: costs come from the analytic model of the machine',
      'how fast a GPU decodes: coded weights take 0.84 of their bytes (npm run bench -- coding), and it is assumed that 16 multiprocessors decode 100 GB/s, and that every run is slowed as if they always did for a busy link',
      'which models share how much: sharing is a common prefix of that share of the bytes, in whole layers, of all functions',
      'what tensor cores gain: runs in 16 bits are taken to last as long as in 32, and only bytes are halved',
    ],
  };
}

const nameOf = ({ weights, reserve, shared }: Question): string =>
  `weights in ${weights}, reserve: ${reserve}, shared: ${shared}`;

/** Functions whose weights the host's pinned memory holds, with what they share once. */
function mostInHostMemory({ weightBits, coding, sharedShare = 0 }: Given): number {
  const bytes = new OfferCache(p3, best.mode, given({ weightBits, coding })).hostBytes('bert-base');
  const ownBytes = bytes * (1 - sharedShare);
  return Math.floor((p3.hostMemory!.pinnedBytes - bytes * sharedShare) / ownBytes);
}

/** By bisection over the steps: p99 rises with the number of functions. */
async function densityOf(scale: Scale, system: Given, seeds: readonly number[]): Promise<Density> {
  const p99Of = async (count: number): Promise<number> =>
    (await playHour(densityRow(scale, count, system), best, seeds)).p99Ms;
  let low = 0;
  const steps = Math.floor((Math.min(functionsMax, mostInHostMemory(system)) - scale.from) / scale.step);
  let high = steps + 1;
  let lowMs = await p99Of(scale.from);
  if (lowMs > p99MaxMs) return { functions: 0, p99Ms: lowMs, endedBy: 'p99' };
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    const p99Ms = await p99Of(scale.from + middle * scale.step);
    if (p99Ms <= p99MaxMs) {
      low = middle;
      lowMs = p99Ms;
    } else {
      high = middle;
    }
  }
  const isAtMost = functionsMax < mostInHostMemory(system) ? 'the search' : 'host memory';
  const endedBy = low === steps ? isAtMost : 'p99';
  return { functions: scale.from + low * scale.step, p99Ms: lowMs, endedBy };
}

function densityRow({ requests, warmup }: Scale, count: number, system: Given): HoursRow {
  const functionNames = Array.from({ length: count }, (_, index) => `bert-base/${index}`);
  return {
    name: `density-${count}`,
    load: '',
    machine: p3,
    warmup,
    trace: (seed) => poissonTrace({ functionNames, ratePerS: 100, requests: requests + warmup, seed }),
    sloMsOf: () => p99MaxMs,
    admission: 'best-effort',
    ...system,
  };
}
