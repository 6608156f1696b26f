/** Many functions on one small machine: how many of their calls are on time, and the memory this takes. */
import { readCores } from '../src/hardware/index.ts';
import type { TraceInvocation } from '../src/replay/index.ts';
import { type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { headOf, type Head } from './many/models.ts';
import { arrivalsOf, closedLoop, openLoop, popularities } from './shared/arrivals.ts';
import { median, percentiles } from './shared/statistics.ts';
import { bareSubject, hostSubject, type Subject } from './many/subjects.ts';

const sloMs = 100;
const mebibyte = 2 ** 20;
/** So many of the largest functions fit into the memory. */
const fittingOfLarge = 40;
/**
 * A call that has waited this long counts as late and is cancelled: if calls come faster than they are served, the run
 * would never end.
 */
const patienceMs = 2000;
/** Calls in one measurement of warm latency, and the number of measurements. */
const warmCalls = 40;
const warmRounds = 9;
const warmRoundsSmall = 2;
/** Time limit for calling all functions in turn before the measurement. */
const warmMsMax = 90_000;
/** The clients that measure a capacity, the duration, and a cap: the clients share the CPU. */
const clients = 16;
const capacityMs = 6000;
const perSecondMax = 4000;
const rarePerSecond = 200;
type Popularity = keyof typeof popularities;
const popularityNames = ['zipf', 'uniform'] as const;

export const benchmark: Benchmark = {
  name: 'many',
  description: '10 to 1,000 functions of 1 KB to 25 MB at half the capacity: on time, memory, loads',
  rowNames: () => scenes.map(titleOf),
  run,
};

interface Scene {
  readonly kibibytes: number;
  readonly functions: number;
  readonly memoryBytes: number;
  /** Besides the host. */
  readonly against: readonly Exclude<SubjectName, 'host'>[];
  /** Takes longer than the rest together. */
  readonly isLong?: boolean;
}

type SubjectName = 'host' | 'process each' | 'bare loop';

interface Figures {
  readonly onTime: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly memoryBytes: number;
  readonly loads: number;
}

const plenty = 4000 * mebibyte;
const large = 25 * 1024;
const fitting = (2 * 40 + fittingOfLarge * 27) * mebibyte;

/**
 * A process each takes some 50 MB and a third of a second of a core, so it is left out if it would take minutes or
 * gigabytes.
 */
const scenes: readonly Scene[] = [
  { kibibytes: 1, functions: 10, memoryBytes: 1000 * mebibyte, against: ['process each', 'bare loop'] },
  { kibibytes: 1, functions: 100, memoryBytes: 1000 * mebibyte, against: ['process each', 'bare loop'] },
  { kibibytes: 1, functions: 1000, memoryBytes: 1000 * mebibyte, against: ['bare loop'] },
  { kibibytes: 1024, functions: 10, memoryBytes: plenty, against: ['process each', 'bare loop'] },
  { kibibytes: 1024, functions: 100, memoryBytes: plenty, against: ['bare loop'] },
  { kibibytes: 1024, functions: 1000, memoryBytes: plenty, against: ['bare loop'] },
  { kibibytes: large, functions: 10, memoryBytes: fitting, against: ['process each', 'bare loop'] },
  { kibibytes: large, functions: 100, memoryBytes: fitting, against: ['bare loop'] },
  { kibibytes: large, functions: 1000, memoryBytes: fitting, against: [], isLong: true },
];
const smallScene: Scene = { kibibytes: 1, functions: 2, memoryBytes: plenty, against: ['process each', 'bare loop'] };

async function run({ small, seed, full, rows: only, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const cores = Math.min(2, readCores().usable);
  const forMs = small ? 300 : 3000;
  // At low rates, a single late call must not be a whole percent.
  const forMsLong = small ? 300 : 15_000;
  const rows: string[][] = [];
  const figures: Record<string, number> = {};
  const all = new Map<string, Figures>();
  const chosen = scenes.filter((scene) => only?.includes(titleOf(scene)) ?? (full === true || scene.isLong !== true));
  for (const scene of small ? [smallScene] : chosen) {
    const title = titleOf(scene);
    const heads: Head[] = [];
    for (let index = 0; index < scene.functions; index++) heads.push(await headOf(scene.kibibytes, index));
    const perSecond = new Map<Popularity, number>();
    for (const name of ['host', ...scene.against] as const) {
      progress(`${title}: ${name}`);
      await using subject = await start(name, heads, scene, cores);
      if (name === 'host') {
        await warm(subject, scene);
        const ratio = await warmRatio(subject, heads, scene, cores, small ? warmRoundsSmall : warmRounds);
        figures[`${title}: a warm call over that of one function`] = ratio;
      } else await callEach(subject, scene);
      for (const popularity of popularityNames) {
        progress(`${title}: ${name}, ${popularity}`);
        if (name === 'host') {
          const capacity = small ? 200 : await capacityPerSecond(subject, popularity, scene, seed);
          perSecond.set(popularity, 0.5 * capacity);
        }
        const rate = perSecond.get(popularity) ?? 0;
        const ms = rate < rarePerSecond ? forMsLong : forMs;
        const drawn = { functions: scene.functions, ratePerS: rate, forMs: ms, popularity: popularities[popularity] };
        const got = await measure(subject, arrivalsOf({ ...drawn, seed }));
        all.set(`${title}, ${popularity}, ${name}`, got);
        rows.push(rowOf([title, popularity, name, rate.toFixed(0)], got));
        figures[`${title}, ${popularity}, ${name}: on time %`] = 100 * got.onTime;
        figures[`${title}, ${popularity}, ${name}: p99 ms`] = got.p99Ms;
      }
    }
  }
  return {
    settings: { cores, sloMs, forMs, forMsLong, seed },
    tables: [
      {
        title: `calls at half of what the host sustains of them, its loads included, ${forMs / 1000} s each, ${forMsLong / 1000} s of fewer than ${rarePerSecond} a second`,
        provenance: { kind: 'measured' },
        columns: ['FUNCTIONS', 'CALLED', 'SERVED BY', '>CALLS/S', '>% ON TIME', '>P50 MS', '>P99 MS', '>MIB', '>LOADS'],
        rows,
      },
    ],
    figures,
    aims: small ? [] : aimsOf(all, figures),
    limits: [
      'half the capacity: of the calls in a second that 16 clients get from the warmed host when they draw functions in the same way, each with one call at a time, loads of what is not in memory included; at most half of 4,000, since the clients share the processors',
      'the capacity is measured by the scene itself and right before it, so a slower host is asked for less: compare CALLS/S too',
      'the clients run on the same processors as the hosts, over HTTP with kept connections',
      'the bare loop runs in the process that measures, without HTTP, and its figure of memory is what its sessions added there',
      'hosts with --cpu-profiling off',
      'functions beyond a hundred load the same files, and share what is mapped of them',
      'a process for each function only where that takes no more than a minute to start',
    ],
  };
}

const titleOf = ({ functions, kibibytes }: Scene): string => `${functions} of ${sizeText(kibibytes)}`;

function rowOf(names: readonly string[], { onTime, p50Ms, p99Ms, memoryBytes, loads }: Figures): string[] {
  const mebibytes = (memoryBytes / mebibyte).toFixed(0);
  return [...names, (100 * onTime).toFixed(2), p50Ms.toFixed(2), p99Ms.toFixed(1), mebibytes, String(loads)];
}

async function start(name: SubjectName, heads: readonly Head[], scene: Scene, cores: number): Promise<Subject> {
  const { memoryBytes } = scene;
  switch (name) {
    case 'host':
      return hostSubject(heads, { cores, memoryBytes, isolation: 'shared', sloMs });
    case 'process each':
      return hostSubject(heads, { cores, memoryBytes: 2 * plenty, isolation: 'own', sloMs });
    case 'bare loop':
      return bareSubject(heads);
  }
}

/** Calls a second for closed-loop clients that draw functions as the open loop does. */
async function capacityPerSecond(
  subject: Subject,
  popularity: Popularity,
  { functions }: Scene,
  seed: number,
): Promise<number> {
  // Far more than there will be calls.
  const drawn = arrivalsOf({
    functions,
    ratePerS: 2 * perSecondMax,
    forMs: capacityMs,
    seed,
    turn: 1,
    popularity: popularities[popularity],
  });
  let next = 0;
  let calls = 0;
  const startMs = performance.now();
  const countFromMs = startMs + capacityMs / 2;
  const endMs = startMs + capacityMs;
  await closedLoop(clients, endMs, async () => {
    await subject.call(drawn[next++ % drawn.length]?.functionIndex ?? 0);
    const nowMs = performance.now();
    if (nowMs >= countFromMs && nowMs < endMs) calls++;
  });
  return Math.min(perSecondMax, (calls / (endMs - countFromMs)) * 1000);
}

/**
 * Warm latency of one function among many, relative to a host with only that function: in turns, the median of the
 * rounds.
 */
async function warmRatio(
  subject: Subject,
  heads: readonly Head[],
  scene: Scene,
  cores: number,
  rounds: number,
): Promise<number> {
  await using alone = await start('host', heads.slice(0, 1), scene, cores);
  const ratios: number[] = [];
  for (const one of [subject, alone]) for (let call = 0; call < warmCalls; call++) await one.call(0);
  for (let round = 0; round < rounds; round++) {
    const first = await warmMs(subject);
    const alonesMs = await warmMs(alone);
    // The first one in a round finds the other's data in the caches.
    ratios.push((first + (await warmMs(subject))) / 2 / alonesMs);
  }
  return median(ratios);
}

/** Median latency of a loaded function, with one call at a time. */
async function warmMs(subject: Subject): Promise<number> {
  const took: number[] = [];
  for (let call = 0; call < warmCalls; call++) {
    const startMs = performance.now();
    await subject.call(0);
    took.push(performance.now() - startMs);
  }
  return median(took);
}

async function callEach(subject: Subject, { functions }: Scene): Promise<void> {
  for (let index = functions - 1; index >= 0; index--) await subject.call(index);
}

/** Calls all functions until three rounds bring no speedup; by then the host's background work is done. */
async function warm(subject: Subject, scene: Scene): Promise<void> {
  const untilMs = performance.now() + warmMsMax;
  let bestMs = Infinity;
  for (let slower = 0; slower < 3 && performance.now() < untilMs;) {
    const startMs = performance.now();
    await callEach(subject, scene);
    const tookMs = performance.now() - startMs;
    slower = tookMs > 0.97 * bestMs ? slower + 1 : 0;
    bestMs = Math.min(bestMs, tookMs);
  }
}

async function measure(subject: Subject, arrivals: readonly TraceInvocation[]): Promise<Figures> {
  const loadsBefore = await subject.loads();
  const latenciesMs: number[] = [];
  const one = async (index: number, dueMs: number): Promise<void> => {
    const isAnswered = await subject.call(index, dueMs + patienceMs);
    latenciesMs.push(isAnswered ? performance.now() - dueMs : Infinity);
  };
  await openLoop(arrivals, performance.now(), one, 2);
  return {
    onTime: latenciesMs.filter((ms) => ms <= sloMs).length / latenciesMs.length,
    ...percentiles(latenciesMs),
    memoryBytes: await subject.memoryBytes(),
    loads: (await subject.loads()) - loadsBefore,
  };
}

function aimsOf(
  all: ReadonlyMap<string, Figures>,
  figures: Readonly<Record<string, number>>,
): NonNullable<BenchmarkResult['aims']> {
  const onTime = (title: string, least: number): NonNullable<BenchmarkResult['aims']> =>
    popularityNames.flatMap((popularity) => {
      const got = all.get(`${title}, ${popularity}, host`);
      if (got === undefined) return [];
      const reached = `${(100 * got.onTime).toFixed(2)}% in ${(got.memoryBytes / mebibyte).toFixed(0)} MiB`;
      return [{ aim: `${title}, ${popularity}: ${least}% on time`, met: 100 * got.onTime >= least, reached }];
    });
  const thousand = all.get('1000 of 1 KB, uniform, host');
  const memory = thousand && {
    aim: '1,000 functions of 1 KB in under 1 GB',
    met: thousand.memoryBytes < 1e9,
    reached: `${(thousand.memoryBytes / 1e6).toFixed(0)} MB`,
  };
  const warm = Object.entries(figures)
    .filter(([figure]) => figure.endsWith('over that of one function'))
    .map(([figure, ratio]) => ({ aim: `${figure}: at most 1.1`, met: ratio <= 1.1, reached: ratio.toFixed(2) }));
  return [
    ...onTime('1000 of 1 KB', 99.9),
    ...onTime('100 of 25 MB', 95),
    ...(memory === undefined ? [] : [memory]),
    ...warm,
  ];
}

function sizeText(kibibytes: number): string {
  return kibibytes < 1024 ? `${kibibytes} KB` : `${kibibytes / 1024} MB`;
}
