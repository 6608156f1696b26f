/** The worst hours of the scheduler in one table: all policies side by side, and how far `best` is behind. */
import {
  BenchmarkNotPossible,
  tableOf,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
} from './benchmark.ts';
import { playHour } from './hours/play.ts';
import { fullScale, hoursRows, smallScale } from './hours/rows.ts';
import type { Hour, HoursRow } from './hours/row.ts';
import { systems } from './hours/systems.ts';
import { verdictOf, type PlayedSystem, type Verdict } from './hours/verdict.ts';

export const benchmark: Benchmark = {
  name: 'hours',
  description: 'the worst hours: is the best policy ever behind another, at scale, in bursts and past every limit',
  rowNames: () => hoursRows(smallScale).map(({ name }) => name),
  run,
};

const seedsDefault = 3;

interface PlayedRow {
  readonly row: HoursRow;
  readonly played: readonly PlayedSystem[];
  readonly verdict: Verdict | undefined;
}

type Aim = NonNullable<BenchmarkResult['aims']>[number];

async function run(options: BenchmarkOptions): Promise<BenchmarkResult> {
  const scale = options.small ? smallScale : fullScale;
  // A small run has an eighth of them; test/bench/hours.test.ts tests the load of each.
  const rows = hoursRows(scale).filter((_, at) => !options.small || options.rows !== undefined || at % 8 === 0);
  return await playRows(options, rows, scale);
}

/** Every system in each row, or in those that were chosen. */
export async function playRows(
  { small, seed, rows: chosen, progress }: BenchmarkOptions,
  all: readonly HoursRow[],
  scale: { readonly requests: number; readonly warmup: number },
): Promise<BenchmarkResult> {
  const seedsOf = (count: number): number[] => Array.from({ length: small ? 1 : count }, (_, step) => seed + step);
  const rows = all.filter(({ name }) => chosen?.includes(name) ?? true);
  if (rows.length === 0) throw new BenchmarkNotPossible('no row was chosen');
  const done: PlayedRow[] = [];
  for (const row of rows) {
    const played: PlayedSystem[] = [];
    for (const system of systems) {
      progress(`${row.name}, ${system.name}`);
      const hour = await playHour(row, system, seedsOf(row.seeds ?? seedsDefault));
      played.push({ name: system.name, knowsFuture: system.knowsFuture, hour });
    }
    done.push({ row, played, verdict: verdictOf(played) });
  }
  return {
    settings: { measuredRequests: scale.requests, warmupRequests: scale.warmup, seeds: small ? 1 : seedsDefault },
    tables: [mainTable(done), detailTable(done)],
    figures: Object.fromEntries(done.flatMap(figuresOf)),
    aims: done.flatMap(aimsOf),
    limits: [
      'anything measured on GPUs: costs come from the analytic model of the machines',
      'p99 is of the requests that were answered; a rival with more than a point less goodput than best is none in p99',
      'p99 is behind where it is so in the median of the seeds and in each of them: from seed to seed it differs by a tenth and more',
      'long rows (h100x8, a hundred GPUs) and drawn scenes run with one seed, rows of sizes with five',
    ],
  };
}

const provenance = { kind: 'simulated', preset: 'p3.8xlarge where a row names no other' } as const;
const percent = (share: number): string => (share * 100).toFixed(1);

function mainTable(done: readonly PlayedRow[]): BenchmarkResult['tables'][number] {
  return {
    title: 'Goodput % / p99 ms of each policy, and by how many points of goodput best is behind the best rival',
    provenance,
    columns: ['ROW', ...systems.map(({ name }) => `>${name}`), '>POINTS', 'best IS', 'LOAD'],
    rows: done.map(({ row, played, verdict }) => [
      row.name,
      ...played.map(({ hour }) => `${percent(hour.goodput)} / ${milliseconds(hour.p99Ms)}`),
      verdict?.pointsBehind.toFixed(1) ?? '-',
      verdict?.text ?? '-',
      row.load,
    ]),
  };
}

function detailTable(done: readonly PlayedRow[]): BenchmarkResult['tables'][number] {
  const best = done.flatMap(({ row, played }) => {
    const hour = played.find(({ name }) => name === 'best')?.hour;
    return hour === undefined ? [] : [{ row, hour }];
  });
  return tableOf(
    'The same under best: what it did',
    best,
    [
      ['ROW', ({ row }) => row.name],
      ['>GOODPUT %', ({ hour }) => percent(hour.goodput)],
      ['>P50 MS', ({ hour }) => milliseconds(hour.p50Ms)],
      ['>P99 MS', ({ hour }) => milliseconds(hour.p99Ms)],
      ['>COLD %', ({ hour }) => percent(hour.coldShare)],
      ['>SHED %', ({ hour }) => percent(hour.shedShare)],
      ['>CPU %', ({ hour }) => percent(hour.offloadedShare)],
      ['>EVICTIONS A REQUEST', ({ hour }) => hour.evictionsPerRequest.toFixed(2)],
      ['>BUSIEST GPU / MEAN', ({ hour }) => hour.busiestToMean.toFixed(2)],
      ['>US A REQUEST (measured)', ({ hour }) => hour.usPerRequest.toFixed(1)],
      ['GOODPUT % BY CLASS', ({ hour }) => classesText(hour)],
    ],
    provenance,
  );
}

const classesText = ({ goodputByClass }: Hour): string =>
  Object.entries(goodputByClass)
    .map(([name, share]) => `${name}: ${percent(share)}`)
    .join(', ') || '-';

const milliseconds = (ms: number): string => (Number.isFinite(ms) ? ms.toFixed(ms < 100 ? 1 : 0) : '-');

function figuresOf({ row, played, verdict }: PlayedRow): [string, number][] {
  const figures: [string, number][] = played.flatMap(({ name, hour }) => {
    const key = `${row.name} ${name}`;
    const values: [string, number][] = [[`${key} goodput`, hour.goodput]];
    // JSON has no infinity: without an answer there is no p99.
    if (Number.isFinite(hour.p99Ms)) values.push([`${key} p99Ms`, hour.p99Ms]);
    for (const [label, share] of Object.entries(hour.goodputByClass)) values.push([`${key} goodput, ${label}`, share]);
    return values;
  });
  if (verdict === undefined) return figures;
  const { pointsBehind, p99Behind } = verdict;
  return [
    ...figures,
    [`${row.name} pointsBehind`, pointsBehind],
    ...(Number.isFinite(p99Behind) ? [[`${row.name} p99Behind`, p99Behind] as [string, number]] : []),
  ];
}

function aimsOf({ row, played, verdict }: PlayedRow): Aim[] {
  const best = played.find(({ name }) => name === 'best')?.hour;
  if (best === undefined) return [];
  const of = (system: string): Hour | undefined => played.find(({ name }) => name === system)?.hour;
  const aims = (row.aims ?? []).map(({ aim, judge }): Aim => {
    const { met, reached } = judge(best, of);
    return { aim: `${row.name}: ${aim}`, met, reached };
  });
  if (verdict === undefined) return aims;
  return [
    ...aims,
    {
      aim: `${row.name}: at most 1 point of goodput and 5% of p99 behind any policy that knows no future`,
      met: !verdict.isBehind,
      reached: verdict.text,
    },
  ];
}
