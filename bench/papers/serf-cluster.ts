/** SERF's policies on a cluster of machines, request by request on a virtual clock (SERF, V-B to V-G). */
import { serfTable } from '../../src/plan/index.ts';
import type { ServiceConfiguration, ServiceProfile } from '../../src/profile/index.ts';
import { Xoshiro } from '../../src/replay/generate/random.ts';

export const machines = 20;
const coresOfMachine = 8;
const nodesMax = 4;

/** Speed on so many threads: nearly linear up to three, and bound by memory beyond four (Figure 2). */
const threadSpeed = [1, 1.95, 2.85, 3.5, 3.9, 4.2, 4.4, 4.5];
/** Of parts of the model, over their share of it: two halves do not fit into the third cache, four quarters do. */
const cacheSpeed = [1, 1, 1.1, 1.25];
/** Two requests at once fit into the third cache; each further one takes this much longer, on a whole model. */
const slowerPerRequest = 0.25;
const msPerFurtherNode = 10 / 3;
/** So that two at once on four threads take 335 ms; four at once on four machines with two threads take 145 then. */
const wholeMs = 335 * 3.5;

/**
 * Service times of ImageNet-22K that agree with what the paper says of them: it prints two (Figure 4), and how they
 * change with each degree of parallelism (Figures 2, 3 and 5). The others are not printed, so what follows from them
 * shows trends, not figures.
 */
function serviceMs(atOnce: number, nodes: number, threads: number): number {
  const alone = wholeMs / (nodes * cacheSpeed[nodes - 1]! * threadSpeed[threads - 1]!);
  return alone * (1 + (slowerPerRequest / nodes) * Math.max(0, atOnce - 2)) + msPerFurtherNode * (nodes - 1);
}

export const likeImageNet: ServiceProfile = {
  unit: 'ms',
  configurations: counted(nodesMax).flatMap((nodes) =>
    counted(coresOfMachine).flatMap((threads) =>
      counted(Math.floor(coresOfMachine / threads)).map((concurrency) => configurationOf(concurrency, nodes, threads)),
    ),
  ),
};

/** As the paper writes it: (service, inter-node, intra-node). */
export function configurationOf(concurrency: number, nodes: number, threads: number): ServiceConfiguration {
  const serviceTime = counted(concurrency).map((atOnce) => serviceMs(atOnce, nodes, threads));
  return { concurrency, nodes, threads, serviceTime };
}

export const nameOf = ({ concurrency, nodes = 1, threads }: ServiceConfiguration): string =>
  `(${concurrency}, ${nodes}, ${threads})`;

function counted(most: number): number[] {
  return Array.from({ length: most }, (_, index) => index + 1);
}

export interface Phase {
  readonly ratePerSecond: number;
  readonly seconds: number;
}

/** A configuration for ever, or the best of the table for the rate of the last interval. */
export type Policy = ServiceConfiguration | 'serf';

export interface ClusterRun {
  /** Mean milliseconds from arrival to answer of the requests that came in each phase. */
  readonly meanMs: readonly number[];
  /** Changes of configuration. */
  readonly changes: number;
}

const intervalMs = 10_000;

/** Machines that work together, with one queue. */
interface Unit {
  /** When its requests end. */
  readonly running: number[];
  /** When they came. */
  readonly waiting: number[];
  /** Its machines still work for units of an earlier configuration. */
  readonly fromMs: number;
}

/**
 * Poisson arrivals, each to a random unit. A request's time is that of the requests that run as it starts. A new
 * configuration takes the machines over as they finish, and the requests that wait.
 */
export function runCluster(
  policy: Policy,
  phases: readonly Phase[],
  { seed, count = machines }: { readonly seed: number; readonly count?: number },
): ClusterRun {
  const random = new Xoshiro(seed);
  const sums = phases.map(() => ({ ms: 0, requests: 0 }));
  const bounds: number[] = [];
  for (const { seconds } of phases) bounds.push((bounds.at(-1) ?? 0) + seconds * 1000);
  const bestAt = (ratePerSecond: number): ServiceConfiguration | undefined =>
    serfTable(likeImageNet, [ratePerSecond], { machines: count })[0]?.best?.configuration;
  let configuration = policy === 'serf' ? bestAt(phases[0]!.ratePerSecond)! : policy;
  const unitsOf = ({ nodes = 1 }: ServiceConfiguration, fromMs: (machine: number) => number): Unit[] =>
    Array.from({ length: Math.floor(count / nodes) }, (_, unit) => ({
      running: [],
      waiting: [],
      fromMs: Math.max(...counted(nodes).map((node) => fromMs(unit * nodes + node - 1))),
    }));
  let units = unitsOf(configuration, () => 0);
  let changes = 0;

  const start = ({ running }: Unit, arrivedMs: number, startMs: number): void => {
    const dueMs = startMs + configuration.serviceTime[running.length]!;
    running.push(dueMs);
    const sum = sums[bounds.findIndex((endMs) => arrivedMs < endMs)]!;
    sum.ms += dueMs - arrivedMs;
    sum.requests++;
  };
  /** Starts what can start by then. */
  const advance = (unit: Unit, nowMs: number): void => {
    const { running, waiting, fromMs } = unit;
    while (waiting.length > 0) {
      const isFull = running.length === configuration.concurrency;
      const startMs = Math.max(fromMs, waiting[0]!, isFull ? Math.min(...running) : 0);
      if (startMs > nowMs) return;
      unit.running.splice(0, Infinity, ...running.filter((dueMs) => dueMs > startMs));
      start(unit, waiting.shift()!, startMs);
    }
  };
  const changeTo = (next: ServiceConfiguration, nowMs: number): void => {
    for (const unit of units) advance(unit, nowMs);
    const { nodes = 1 } = configuration;
    const busyUntilMs = units.map(({ running, fromMs }) => Math.max(fromMs, ...running));
    const waiting = units.flatMap((unit) => unit.waiting).toSorted((a, b) => a - b);
    configuration = next;
    units = unitsOf(next, (machine) => busyUntilMs[Math.floor(machine / nodes)] ?? 0);
    for (const [index, arrivedMs] of waiting.entries()) units[index % units.length]!.waiting.push(arrivedMs);
    changes++;
  };

  let nowMs = 0;
  let decideAtMs = intervalMs;
  let arrivals = 0;
  for (const [index, { ratePerSecond }] of phases.entries()) {
    nowMs = bounds[index - 1] ?? 0;
    for (;;) {
      nowMs += random.exponential(ratePerSecond) * 1000;
      if (nowMs >= bounds[index]!) break;
      while (nowMs >= decideAtMs) {
        const next = policy === 'serf' ? bestAt((arrivals * 1000) / intervalMs) : undefined;
        if (next !== undefined && nameOf(next) !== nameOf(configuration)) changeTo(next, decideAtMs);
        arrivals = 0;
        decideAtMs += intervalMs;
      }
      arrivals++;
      const unit = units[random.below(units.length)]!;
      unit.waiting.push(nowMs);
      advance(unit, nowMs);
    }
  }
  for (const unit of units) advance(unit, Infinity);
  return { meanMs: sums.map(({ ms, requests }) => ms / requests), changes };
}
