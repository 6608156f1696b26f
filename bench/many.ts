/** Many functions on one small machine: how many of their calls are on time, and what that takes of its memory. */
import { readCores } from '../src/hardware/index.ts';
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
import { makeArrivals, type Arrival, type Popularity } from './many/arrivals.ts';
import { headOf, type Head } from './many/models.ts';
import { median } from './servers.ts';
import { bareSubject, poolsSubject, type Subject } from './many/subjects.ts';

const sloMs = 100;
const mebibyte = 2 ** 20;
/** What a model of 25 MB is loaded as: its weights, and the form that the kernels want them in. */
const fittingOfLarge = 40;
/**
 * A call that has waited so long counts as late, and is given up: where calls come faster than they are served, nothing
 * would end.
 */
const patienceMs = 2000;
const warmCalls = 500;
const popularities = ['zipf', 'uniform'] as const satisfies readonly Popularity[];

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
  /** Beside the pools. */
  readonly against: readonly Exclude<SubjectName, 'pools'>[];
  /** Takes longer than the rest together. */
  readonly isLong?: boolean;
}

type SubjectName = 'pools' | 'process each' | 'bare loop';

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
 * A process each takes some 50 MB and a third of a second of a core, so that is left out where it would take minutes,
 * or gigabytes.
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
const smallScene: Scene = { kibibytes: 1, functions: 12, memoryBytes: plenty, against: ['process each', 'bare loop'] };

async function run({ small, seed, full, rows: only, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const cores = Math.min(2, readCores().usable);
  const forMs = small ? 1000 : 3000;
  const rows: string[][] = [];
  const figures: Record<string, number> = {};
  const all = new Map<string, Figures>();
  const chosen = scenes.filter((scene) => only?.includes(titleOf(scene)) ?? (full === true || scene.isLong !== true));
  for (const scene of small ? [smallScene] : chosen) {
    const title = titleOf(scene);
    progress(title);
    const heads: Head[] = [];
    for (let index = 0; index < scene.functions; index++) heads.push(await headOf(scene.kibibytes, index));
    const alone = await oneAlone(heads, cores, small ? 200 : 2000);
    const perSecond = small ? 100 : 0.5 * alone.perSecond;
    for (const name of ['pools', ...scene.against] as const) {
      progress(`${title}: ${name}`);
      await using subject = await start(name, heads, scene, cores);
      await warm(subject, makeArrivals('zipf', scene.functions, perSecond, forMs, seed), scene);
      if (name === 'pools')
        figures[`${title}: a warm call over that of one function`] = (await warmMs(subject)) / alone.warmMs;
      for (const popularity of popularities) {
        const got = await measure(subject, makeArrivals(popularity, scene.functions, perSecond, forMs, seed));
        all.set(`${title}, ${popularity}, ${name}`, got);
        rows.push(rowOf([title, popularity, name, perSecond.toFixed(0)], got));
        figures[`${title}, ${popularity}, ${name}: on time %`] = 100 * got.onTime;
        figures[`${title}, ${popularity}, ${name}: p99 ms`] = got.p99Ms;
      }
    }
  }
  return {
    settings: { cores, sloMs, forMs, seed },
    tables: [
      {
        title: `calls at half the capacity of one function, ${forMs / 1000} s each`,
        provenance: { kind: 'measured' },
        columns: [
          { title: 'FUNCTIONS' },
          { title: 'CALLED' },
          { title: 'SERVED BY' },
          { title: 'CALLS/S', align: 'right' },
          { title: '% ON TIME', align: 'right' },
          { title: 'P50 MS', align: 'right' },
          { title: 'P99 MS', align: 'right' },
          { title: 'MIB', align: 'right' },
          { title: 'LOADS', align: 'right' },
        ],
        rows,
      },
    ],
    figures,
    aims: small ? [] : aimsOf(all, figures),
    limits: [
      'the pools alone, without HTTP before them',
      'the bare loop runs in the process that measures, and its figure of memory is what its sessions added there',
      'functions beyond ten load copies of the same files, which are then in the page cache',
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
    case 'pools':
      return poolsSubject(heads, { cores, memoryBytes, isolation: 'shared' });
    case 'process each':
      return poolsSubject(heads, { cores, memoryBytes: 2 * plenty, isolation: 'own' });
    case 'bare loop':
      return bareSubject(heads);
  }
}

/** One function alone in the pools: its calls in a second from sixteen clients, and what one call takes. */
async function oneAlone(
  heads: readonly Head[],
  cores: number,
  forMs: number,
): Promise<{ readonly perSecond: number; readonly warmMs: number }> {
  await using subject = poolsSubject(heads.slice(0, 1), { cores, memoryBytes: Infinity, isolation: 'shared' });
  await subject.call(0);
  let calls = 0;
  const startMs = performance.now();
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      while (performance.now() - startMs < forMs) {
        await subject.call(0);
        calls++;
      }
    }),
  );
  // The calls of this process and their clients take a part of it too: an open loop that measures itself is slower.
  const perSecond = Math.min(4000, (calls / (performance.now() - startMs)) * 1000);
  return { perSecond, warmMs: await warmMs(subject) };
}

/** The median of what a call takes of a function that is loaded, one after the other. */
async function warmMs(subject: Subject): Promise<number> {
  const took: number[] = [];
  for (let call = 0; call < warmCalls; call++) {
    const startMs = performance.now();
    await subject.call(0);
    took.push(performance.now() - startMs);
  }
  return median(took);
}

/** Every function is called once, the rarest first, so that what stays loaded is what is called most. */
async function warm(subject: Subject, arrivals: readonly Arrival[], { functions }: Scene): Promise<void> {
  const calls = new Map<number, number>();
  for (const { index } of arrivals) calls.set(index, (calls.get(index) ?? 0) + 1);
  const order = Array.from({ length: functions }, (_, index) => index);
  order.sort((a, b) => (calls.get(a) ?? 0) - (calls.get(b) ?? 0));
  for (const index of order) await subject.call(index);
}

async function measure(subject: Subject, arrivals: readonly Arrival[]): Promise<Figures> {
  const loadsBefore = subject.loads;
  const latenciesMs: number[] = [];
  const pending: Promise<void>[] = [];
  const startMs = performance.now();
  const one = async ({ index, atMs }: Arrival): Promise<void> => {
    const isAnswered = await subject.call(index, startMs + atMs + patienceMs);
    latenciesMs.push(isAnswered ? performance.now() - startMs - atMs : Infinity);
  };
  for (let next = 0; next < arrivals.length;) {
    const nowMs = performance.now() - startMs;
    while ((arrivals[next]?.atMs ?? Infinity) <= nowMs) {
      const arrival = arrivals[next++];
      if (arrival !== undefined) pending.push(one(arrival));
    }
    const waitMs = (arrivals[next]?.atMs ?? 0) - nowMs;
    await new Promise<void>((resolve) => (waitMs > 2 ? setTimeout(resolve, waitMs - 1) : setImmediate(resolve)));
  }
  await Promise.all(pending);
  latenciesMs.sort((a, b) => a - b);
  const at = (share: number): number => latenciesMs[Math.floor(latenciesMs.length * share)] ?? Number.NaN;
  return {
    onTime: latenciesMs.filter((ms) => ms <= sloMs).length / latenciesMs.length,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    memoryBytes: await subject.memoryBytes(),
    loads: subject.loads - loadsBefore,
  };
}

function aimsOf(
  all: ReadonlyMap<string, Figures>,
  figures: Readonly<Record<string, number>>,
): NonNullable<BenchmarkResult['aims']> {
  const onTime = (title: string, least: number): NonNullable<BenchmarkResult['aims']> =>
    popularities.flatMap((popularity) => {
      const got = all.get(`${title}, ${popularity}, pools`);
      if (got === undefined) return [];
      const reached = `${(100 * got.onTime).toFixed(2)}% in ${(got.memoryBytes / mebibyte).toFixed(0)} MiB`;
      return [{ aim: `${title}, ${popularity}: ${least}% on time`, met: 100 * got.onTime >= least, reached }];
    });
  const thousand = all.get('1000 of 1 KB, uniform, pools');
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
