/** The answer to "how many GPUs do I need": as JSON, as sentences and as a table. */
import { formatBytes } from '../tools/index.ts';
import { count, ms, percent, percentsApart } from './tables.ts';
import type { Report, SettingValue } from './types.ts';

/** A size that may be enough. */
export interface CapacityStep {
  readonly hosts: number;
  /** Over all hosts. */
  readonly gpus: number;
  /** Cores of each host. */
  readonly cores: number;
}

export const capacityResources = [
  'gpu time',
  'gpu memory',
  'links',
  'host memory',
  'disk',
  'cores',
  'separate hosts',
] as const;
export type CapacityResource = (typeof capacityResources)[number];

/** One replay of the search. */
export interface CapacityRun extends CapacityStep {
  readonly goodput: number | null;
  readonly p99_ms: number | null;
  readonly cold_start_rate: number | null;
  /** Mean over the GPUs; null without any. */
  readonly utilisation: number | null;
}

/** The largest insufficient size: the next cheaper one, or the last that was tried. */
interface CapacityShortage extends CapacityRun {
  /** null: no single resource explains it. */
  readonly resource: CapacityResource | null;
  /** A sentence. */
  readonly why: string;
  /** Goodput on the same machine with one resource unlimited. */
  readonly goodput_with: Readonly<Partial<Record<CapacityResource, number | null>>>;
}

export interface CapacityAnswer {
  readonly machine: string;
  /** null: no allowed size is enough. */
  readonly enough: CapacityRun | null;
  /** Per host, if the CPU runs functions: the fewest cores that are enough beside these GPUs. */
  readonly cores_needed: number | null;
  /** null: the cheapest size is enough. */
  readonly short: CapacityShortage | null;
  /** From the smallest on. */
  readonly runs: readonly CapacityRun[];
}

/** An answer in a report, with the sentences of `answerText`. */
interface ToldAnswer extends CapacityAnswer {
  readonly text: string;
}

export interface CapacityReport {
  readonly format: 'turntable-capacity';
  readonly version: 1;
  readonly simulated: true;
  /** As in a report. */
  readonly warnings?: readonly string[];
  /** That was asked for. */
  readonly goodput: number;
  readonly seed: number;
  readonly requests: number;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly answers: readonly ToldAnswer[];
}

export function capacityRun(step: CapacityStep, report: Report): CapacityRun {
  const { goodput, p99_ms: p99, cold_start_rate: cold, gpus } = report;
  const busy = gpus.reduce((sum, { utilisation }) => sum + utilisation, 0);
  const utilisation = gpus.length === 0 ? null : busy / gpus.length;
  return { ...step, goodput, p99_ms: p99, cold_start_rate: cold, utilisation };
}

/** The share of the gap to the goal that an unlimited resource must close to count as the reason. */
const reasonShare = 0.25;

const remedies: Readonly<Record<CapacityResource, string>> = {
  'gpu time': 'faster GPUs',
  'gpu memory': 'more GPU memory',
  links: 'faster links',
  'host memory': 'more host memory',
  disk: 'a faster disk',
  cores: 'more cores',
  'separate hosts': 'one scheduler over all hosts',
};

/** @param gpuBytes weights that all GPUs together can hold @param goodputWith with each resource unlimited */
export function shortageOf(
  run: CapacityRun,
  report: Report,
  goal: number,
  gpuBytes: number,
  goodputWith: CapacityShortage['goodput_with'],
): CapacityShortage {
  const own = run.goodput ?? 0;
  let resource: CapacityResource | null = null;
  let best = own + reasonShare * (goal - own);
  for (const [name, goodput] of Object.entries(goodputWith) as [CapacityResource, number | null][]) {
    if ((goodput ?? 0) < best || (resource !== null && goodput === best)) continue;
    resource = name;
    best = goodput ?? 0;
  }
  const others = (Object.entries(goodputWith) as [CapacityResource, number | null][]).filter(
    ([name, goodput]) => name !== resource && name !== 'separate hosts' && goodput !== null && goodput >= goal,
  );
  const also = others.length === 0 ? '' : `; ${others.map(([name]) => remedies[name]).join(' or ')} would do as well`;
  const why = sentence(resource, run, report, gpuBytes, best) + also;
  return { ...run, resource, why, goodput_with: goodputWith };
}

function sentence(
  resource: CapacityResource | null,
  { utilisation }: CapacityRun,
  { cold_start_rate: cold, partial_start_rate: partial, disk_starts: diskStarts = 0, host_memory: memory }: Report,
  gpuBytes: number,
  best: number,
): string {
  const waited = percent((cold ?? 0) + (partial ?? 0));
  const weights = formatBytes(memory?.functions_bytes ?? 0);
  switch (resource) {
    case 'gpu time':
      return `the GPUs' time ran out: they execute ${percent(utilisation)} of the time; with runs that take none it would be ${percent(best)}`;
    case 'gpu memory':
      return (
        `GPU memory ran out: the functions have ${weights} of weights, the GPUs hold ${formatBytes(gpuBytes)}, and ${waited} of ` +
        `the calls waited for weights; with room for all it would be ${percent(best)}`
      );
    case 'links':
      return `the links ran out: ${waited} of the calls waited for weights; with links without limit it would be ${percent(best)}`;
    case 'host memory':
      return (
        `host memory ran out: the functions have ${weights} of weights, it holds ${formatBytes(memory?.capacity_bytes ?? 0)}; with room ` +
        `for all it would be ${percent(best)}`
      );
    case 'disk':
      return (
        `the disk ran out: ${count(memory?.disk_reads ?? 0)} functions were read from it, and ${count(diskStarts)} calls waited ` +
        `for that; with a disk without limit it would be ${percent(best)}`
      );
    case 'cores':
      return `the cores ran out; with cores without limit it would be ${percent(best)}`;
    case 'separate hosts':
      return `its GPUs and cores are in hosts of their own; with one scheduler over all of them it would be ${percent(best)}`;
    case null:
      return (
        `no single resource explains it: whichever has no limit, the goal is about as far away; ${waited} of the calls waited for what ` +
        'was not loaded (--warmup leaves out those of the beginning)'
      );
  }
}

export const isSameSize = (one: CapacityStep | null, other: CapacityStep): boolean =>
  one !== null && stepText(one) === stepText(other);

function stepText({ hosts, gpus, cores }: CapacityStep): string {
  const size =
    gpus > 0 ? `${count(gpus)} GPU${gpus === 1 ? '' : 's'}` : `${count(cores)} core${cores === 1 ? '' : 's'}`;
  return hosts === 1 ? size : `${gpus > 0 ? size : `${size} each`} in ${count(hosts)} hosts`;
}

/** "p3.8xlarge: 3 GPUs". */
export function answerText({ machine, enough, short, cores_needed: cores }: CapacityAnswer, goal: number): string {
  if (enough === null) {
    return `${machine}: not within what was allowed. ${short === null ? '' : shortText(short, goal)}`.trim();
  }
  const beside =
    cores === null ? '' : `, and ${cores} core${cores === 1 ? '' : 's'} of each host for what the CPU runs`;
  const reached = `${machine}: ${stepText(enough)}${beside} for ${percent(enough.goodput)} (asked: ${percent(goal)}).`;
  return short === null ? `${reached} No smaller size was left to try.` : `${reached} ${shortText(short, goal)}`;
}

const shortText = (short: CapacityShortage, goal: number): string =>
  `${stepText(short)} ${short.gpus === 1 || (short.gpus === 0 && short.cores === 1) ? 'reaches' : 'reach'} ${percentsApart(short.goodput ?? 0, goal)[0]}: ${short.why}.`;

export const capacityColumns = ['MACHINE', 'SIZE', '>GOODPUT', '>P99', '>COLD', '>EXECUTING', ''] as const;

export function capacityRows({ answers }: CapacityReport): string[][] {
  return answers.flatMap(({ machine, enough, runs }) =>
    runs.map((run) => [
      machine,
      stepText(run),
      percent(run.goodput),
      ms(run.p99_ms),
      percent(run.cold_start_rate),
      percent(run.utilisation),
      isSameSize(enough, run) ? 'enough' : '',
    ]),
  );
}
