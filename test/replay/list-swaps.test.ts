/** When a host changes a function's list of instances on the CPU, and to which: as recorded, and as a replay decides it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import {
  CoreAllocator,
  createCpuPools,
  ListChooser,
  ListSwaps,
  LivePrediction,
  PoolTables,
  type ListLoad,
  type PoolConfiguration,
  type Reconfiguration,
} from '../../src/cpu/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { Statistics } from '../../src/host/records/statistics.ts';
import { PoolsController } from '../../src/host/pools/pools-controller.ts';
import { runSimulation, Xoshiro, type ListChangeRecord, type TraceInvocation } from '../../src/replay/index.ts';
import { policies } from '../../src/schedule/index.ts';
import { poolLimits } from '../support/cpu-pools.ts';
import { fourCoreProfile } from '../support/cpu-profile.ts';
import { writeReluModel } from '../support/models.ts';
import { FakePool, fakeRegistry } from '../support/fake-pool.ts';

afterEach(() => void vi.restoreAllMocks());

/** What a host sees of a pool for some time: calls a second, the depth of the queue, cores, and what calls take. */
interface Phase {
  readonly ticks: number;
  readonly arrivalsPerSecond: number;
  readonly queueDepth: number;
  readonly cores: number;
  readonly startMs: number | undefined;
  readonly isRefused: boolean;
  readonly answersPerTick: number;
  readonly serviceMs: number;
}

interface Sequence {
  readonly objective: 'latency' | 'cores';
  readonly batchMax: number;
  readonly phases: readonly Phase[];
}

const sequences = Array.from({ length: 30 }, (_, seed) => sequenceOf(seed));

function sequenceOf(seed: number): Sequence {
  const random = new Xoshiro(seed);
  const upTo = (most: number): number => random.below(most);
  const phases = Array.from({ length: 8 }, (): Phase => {
    const arrivalsPerSecond = [0.5, 5, 60, 250, 400, 5000][upTo(6)]!;
    return {
      ticks: 1 + upTo(60),
      arrivalsPerSecond,
      queueDepth: (arrivalsPerSecond / 100) * [0.5, 1, 8][upTo(3)]!,
      cores: [4, 4, 2, 1, 0][upTo(5)]!,
      startMs: [undefined, 5, 300, 3000][upTo(4)],
      isRefused: upTo(4) === 0,
      answersPerTick: upTo(3) * 10,
      serviceMs: 4 + upTo(20),
    };
  });
  return { objective: upTo(3) === 0 ? 'cores' : 'latency', batchMax: [1, 16][upTo(2)]!, phases };
}

const tickMs = 500;

/** What the host's own controller decides: `12 <4,1,4> batches of 16` at tick 12. */
async function decidedByHost({ objective, batchMax, phases }: Sequence): Promise<string> {
  const pool = new FakePool();
  const controller = new PoolsController({
    registry: fakeRegistry,
    pools: pool.pools,
    statistics: new Statistics(),
    profileOf: () => fourCoreProfile,
    cpu: { configure: 'auto', objective, cores: 4, reconfigureIntervalMs: 2000 },
    batchMaxOf: () => batchMax,
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const decided: string[] = [];
  let tick = 0;
  for (const phase of phases) {
    pool.set(phase);
    pool.cores = phase.cores;
    pool.failure = phase.isRefused ? 'there are too few cores' : undefined;
    for (const untilTick = tick + phase.ticks; tick < untilTick; tick++) {
      for (let answer = 0; answer < phase.answersPerTick; answer++)
        controller.answered('f@1', phase.serviceMs, phase.serviceMs, tick * tickMs + answer);
      const before = pool.configured.length;
      controller.called('f@1');
      controller.tick(tick * tickMs);
      for (const { configuration, cause } of pool.configured.slice(before)) {
        const groups = configuration.groups.map(
          ({ instances, threads, batch }) => `<${instances},${threads},${batch}>`,
        );
        decided.push(`${tick} ${groups.join('+')}/${configuration.batchTimeoutMs} ${cause}`);
        // By the next look the outcome is known.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }
  controller.close();
  return decided.join('; ');
}

const recordedPath = new URL('list-swaps.recorded.json', import.meta.url);

test('a host changes lists as recorded before the decision had one owner', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const found: string[] = [];
  for (const sequence of sequences) found.push(await decidedByHost(sequence));
  vi.useRealTimers();
  if (process.env['TURNTABLE_GOLDEN'] === 'record') writeFileSync(recordedPath, `${JSON.stringify(found, null, 2)}\n`);
  expect(found).toEqual(JSON.parse(readFileSync(recordedPath, 'utf8')));
});

/** What the pool of a replay showed at a look, with the answers since the last one. */
interface Look {
  readonly nowMs: number;
  readonly load: ListLoad;
  readonly answers: Parameters<LivePrediction['answered']>[];
  /** Where it decided: the function's share of the cores, the list that it chose, and whether that could be had. */
  cores: number | undefined;
  chosen: string | undefined;
  isDone: boolean;
}

const tables = new PoolTables(fourCoreProfile, { cores: 4, batchMax: 16, batchTimeoutMs: 5 });

/** A function in a replay whose load changes, and all that its chooser saw. */
function looksOfReplay(seed: number): {
  readonly looks: readonly Look[];
  readonly changes: readonly ListChangeRecord[];
} {
  const random = new Xoshiro(seed);
  const answered = vi.spyOn(LivePrediction.prototype, 'answered');
  const look = vi.spyOn(ListChooser.prototype, 'look');
  const choose = vi.spyOn(ListChooser.prototype, 'choose');
  const shareOf = vi.spyOn(CoreAllocator.prototype, 'shareOf');
  const changed = vi.spyOn(ListChooser.prototype, 'changed');
  const invocations: TraceInvocation[] = [];
  let nowMs = 0;
  for (let phase = 0; phase < 4; phase++) {
    const perSecond = [0.5, 5, 60, 250][random.below(4)]!;
    const endMs = nowMs + 1000 * (5 + random.below(40));
    for (; nowMs < endMs; nowMs += random.exponential(perSecond / 1000))
      invocations.push({ arrivalMs: nowMs, functionIndex: 0 });
  }
  const changes: ListChangeRecord[] = [];
  runSimulation(
    { functionNames: [], invocations: () => invocations },
    {
      gpus: [],
      policy: policies.best,
      // With memory for one instance alone, or for all.
      cpu: { cores: 4, memoryBytes: [150, 2000][seed % 2]! },
      cores: Array.from({ length: 4 }, (_, id) => ({ id, core: id, socket: 0 })),
      sheetOf: () => ({
        sloMs: 100,
        priority: 0,
        pinned: false,
        gpus: [],
        cpu: { latencyMs: 10, cores: 1, loadMs: 300, bytes: 100 },
      }),
      demandOf: () => ({
        limits: { batchMax: 16, batchDelayMs: 5, instancesMax: 4 },
        msOf: (rows) => 4 + 6 * rows,
        swaps: { tables, sloMs: 100, rowsPerCall: 1 },
      }),
      observer: {
        outcome: () => undefined,
        eviction: () => undefined,
        busy: () => undefined,
        listChange: (record) => changes.push(record),
      },
    },
  );
  const looks: Look[] = [];
  let answers: Look['answers'] = [];
  const calls: { readonly order: number; readonly take: () => void }[] = [];
  const each = (mock: { readonly invocationCallOrder: number[] }, take: (at: number) => void): void => {
    for (const [at, order] of mock.invocationCallOrder.entries()) calls.push({ order, take: () => take(at) });
  };
  each(answered.mock, (at) => answers.push(answered.mock.calls[at]!));
  each(look.mock, (at) => {
    const [load, nowMs] = look.mock.calls[at]!;
    looks.push({ nowMs, load, answers, cores: undefined, chosen: undefined, isDone: false });
    answers = [];
  });
  each(choose.mock, (at) => (looks.at(-1)!.chosen = JSON.stringify(choose.mock.results[at]!.value)));
  each(shareOf.mock, (at) => (looks.at(-1)!.cores = shareOf.mock.results[at]!.value as number));
  each(changed.mock, (at) => {
    [looks.findLast(({ chosen }) => chosen !== undefined)!.isDone] = changed.mock.calls[at]!;
  });
  for (const { take } of calls.toSorted((one, other) => one.order - other.order)) take();
  vi.restoreAllMocks();
  return { looks, changes };
}

test('a replay changes lists as the controller of a host does that sees the same loads', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const outcomes = { done: 0, refused: 0 };
  for (let seed = 0; seed < 4; seed++) {
    const { looks, changes } = looksOfReplay(seed);
    for (const { outcome } of changes) outcomes[outcome]++;
    vi.spyOn(performance, 'now').mockReturnValue(0);
    const pool = new FakePool();
    const controller = new PoolsController({
      registry: fakeRegistry,
      pools: pool.pools,
      statistics: new Statistics(),
      profileOf: () => fourCoreProfile,
      cpu: { configure: 'auto', objective: 'latency', cores: 4, reconfigureIntervalMs: 10_000 },
      batchMaxOf: () => 16,
      logger: createLogger({ level: 'silent', format: 'json' }),
    });
    controller.predictCpu('f@1');
    for (const { nowMs, load, answers, cores = 4, chosen, isDone } of looks) {
      for (const answer of answers) controller.answered('f@1', ...answer);
      pool.set(load);
      pool.cores = cores;
      pool.failure = isDone ? undefined : 'there is no room';
      const before = pool.configured.length;
      controller.called('f@1');
      controller.tick(nowMs);
      expect(pool.configured.slice(before).map((change) => JSON.stringify(change))).toEqual(
        chosen === undefined ? [] : [chosen],
      );
      if (chosen !== undefined) await new Promise((resolve) => setImmediate(resolve));
    }
    controller.close();
    vi.restoreAllMocks();
  }
  vi.useRealTimers();
  // Both were seen.
  expect(outcomes.done).toBeGreaterThan(2);
  expect(outcomes.refused).toBeGreaterThan(3);
});

const machineCores = Array.from({ length: 4 }, (_, id) => ({ id, core: id, socket: 0 }));

/** What a replay did with a function's list, in order, without what it was refused, and what served after each step. */
interface SwapStep {
  readonly what: 'begin' | 'takeOver' | 'giveOne' | 'drop';
  /** Of a list that has begun, what it began: undefined where it was refused. */
  readonly to: PoolConfiguration | undefined;
  readonly serving: string;
}

const servingOf = (instances: readonly { readonly threads: number; readonly batch: number }[]): string =>
  instances
    .map(({ threads, batch }) => `${threads}x${batch}`)
    .sort()
    .join(' ');

/** Function 0 changes its list with its load; the others, which come one after the other, want its memory. */
function swapStepsOfReplay(): readonly SwapStep[] {
  const steps: SwapStep[] = [];
  const whats = ['begin', 'takeOver', 'giveOne', 'drop'] as const;
  for (const what of whats) {
    const original = ListSwaps.prototype[what] as (...given: unknown[]) => unknown;
    vi.spyOn(ListSwaps.prototype, what as 'drop').mockImplementation(function (this: unknown, ...given: unknown[]) {
      const lists = this as ListSwaps<never>;
      const result = original.apply(lists, given);
      const isRefused = what === 'begin' && (result as { state?: string }).state === 'refused';
      const to = what === 'begin' && !isRefused ? (given[0] as PoolConfiguration) : undefined;
      const serving = servingOf(lists.serving);
      if (!isRefused) steps.push({ what, to, serving });
      return result as undefined;
    });
  }
  const invocations: TraceInvocation[] = [];
  let nowMs = 0;
  for (const [functionIndex, seconds, perSecond] of [[0, 40, 5], [0, 40, 150], [1, 20, 5], [2, 20, 5], [0, 60, 60], [3, 20, 5], [1, 400, 1], [0, 40, 250], [0, 40, 5]] as const) {
    const endMs = nowMs + 1000 * seconds;
    for (; nowMs < endMs; nowMs += 1000 / perSecond) invocations.push({ arrivalMs: nowMs, functionIndex });
  } // prettier-ignore
  runSimulation(
    { functionNames: [], invocations: () => invocations },
    {
      gpus: [],
      policy: policies.best,
      cpu: { cores: 4, memoryBytes: 500 },
      cores: machineCores,
      sheetOf: () => ({ sloMs: 100, priority: 0, pinned: false, gpus: [], cpu: { latencyMs: 10, cores: 1, loadMs: 300, bytes: 100 } }),
      demandOf: (functionIndex) => ({
        limits: { batchMax: 16, batchDelayMs: 5, instancesMax: 4 },
        msOf: (rows) => 4 + 6 * rows,
        swaps: functionIndex === 0 ? { tables, sloMs: 100, rowsPerCall: 1 } : undefined,
      }),
      observer: { outcome: () => undefined, eviction: () => undefined, busy: () => undefined },
    },
  ); // prettier-ignore
  vi.restoreAllMocks();
  return steps;
}

test('pools that get the orders of a replay serve with the instances that serve in it', async () => {
  const steps = swapStepsOfReplay();
  const folder = await mkdtemp(join(tmpdir(), 'turntable-list-swaps-'));
  const pools = createCpuPools({
    cores: 4,
    logicalCores: machineCores,
    blankInstances: 0,
    memoryBytes: 4e9,
    log: () => undefined,
  });
  pools.register({ key: 'f', modelPath: await writeReluModel(folder), threads: 1 }, { ...poolLimits, batchMax: 16 });
  await pools.load('f');
  const shown: string[] = [];
  let change: Promise<Reconfiguration> | undefined;
  for (const [at, { what, to }] of steps.entries()) {
    if (to !== undefined) change = pools.configure('f', to, 'as in the replay');
    // Its instances start until the replay's take over; without any to start it is over at once.
    const isOver = what === 'takeOver' || steps[at]!.serving !== (steps[at - 1]?.serving ?? '');
    if (isOver) await change;
    if (what === 'giveOne') await pools.evict('f', { isSpare: true });
    if (what === 'drop') await pools.evict('f');
    shown.push(`${what} ${servingOf(pools.facts('f')?.list?.groups ?? [])}`);
  }
  await pools.stop(0);
  await rm(folder, { recursive: true, force: true });
  expect(shown).toEqual(steps.map(({ what, serving }) => `${what} ${serving}`));
  // All kinds of steps were seen.
  expect(new Set(steps.map(({ what }) => what)).size).toBe(4);
});
