import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { fourCoreProfile } from '../../test/support/cpu-profile.ts';
import { PoolTables } from '../cpu/index.ts';
import { policies, Scheduler, type SchedulerEvent } from '../schedule/index.ts';
import type { DemandOptions } from './simulator-demand.ts';
import { runSimulation } from './simulator.ts';
import type { ListChangeRecord, Outcome, TraceInvocation } from './types.ts';

afterEach(() => void vi.restoreAllMocks());

const sessionBytes = 100;
const loadMs = 300;
const tables = new Map<string, PoolTables>();

function demandOf(cores: number, batchMax: number): DemandOptions {
  const key = `${cores} ${batchMax}`;
  const known = tables.get(key) ?? new PoolTables(fourCoreProfile, { cores, batchMax, batchTimeoutMs: 5 });
  tables.set(key, known);
  const { latency } = fourCoreProfile.pool;
  return {
    limits: { batchMax, batchDelayMs: 0, instancesMax: cores },
    msOf: (rows) => latency[0]![0]! * (0.4 + 0.6 * rows),
    swaps: { tables: known, sloMs: 100, rowsPerCall: 1 },
  };
}

interface Load {
  readonly cores: number;
  readonly batchMax: number;
  readonly memorySessions: number;
  /** One after the other: the calls of a phase come evenly to one function. */
  readonly phases: readonly { readonly functionIndex: number; readonly seconds: number; readonly perSecond: number }[];
}

interface Observed {
  readonly outcomes: readonly Outcome[];
  readonly changes: readonly ListChangeRecord[];
  readonly events: readonly SchedulerEvent[];
}

function replayed({ cores, batchMax, memorySessions, phases }: Load): Observed {
  const outcomes: Outcome[] = [];
  const changes: ListChangeRecord[] = [];
  const handle = vi.spyOn(Scheduler.prototype, 'handle');
  const invocations: TraceInvocation[] = [];
  let nowMs = 0;
  for (const { functionIndex, seconds, perSecond } of phases) {
    const endMs = nowMs + 1000 * seconds;
    for (; nowMs < endMs; nowMs += 1000 / perSecond) invocations.push({ arrivalMs: nowMs, functionIndex });
  }
  runSimulation(
    { functionNames: [], invocations: () => invocations },
    {
      gpus: [],
      policy: policies.best,
      cpu: { cores, memoryBytes: memorySessions * sessionBytes },
      cores: Array.from({ length: cores }, (_, id) => ({ id, core: id, socket: 0 })),
      sheetOf: () => ({
        sloMs: 100,
        priority: 0,
        pinned: false,
        gpus: [],
        cpu: { latencyMs: 10, cores: 1, loadMs, bytes: sessionBytes },
      }),
      demandOf: () => demandOf(cores, batchMax),
      observer: {
        outcome: (outcome) => outcomes.push({ ...outcome }),
        eviction: () => undefined,
        busy: () => undefined,
        listChange: (record) => changes.push(record),
      },
    },
  );
  expect(outcomes).toHaveLength(invocations.length);
  const events = handle.mock.calls.map(([event]) => event);
  vi.restoreAllMocks();
  return { outcomes, changes, events };
}

const phase = (functionIndex: number, seconds: number, perSecond: number) => ({ functionIndex, seconds, perSecond });

test('a list follows the load: all cores for a call now and then, an instance on each core for many', () => {
  const { outcomes, changes } = replayed({
    cores: 4,
    batchMax: 1,
    memorySessions: 20,
    phases: [phase(0, 60, 10), phase(0, 30, 250)],
  });
  expect(changes.map(({ outcome, cause }) => `${outcome} ${cause}`)).toEqual([
    'done 10 requests/s',
    expect.stringMatching(/^done /),
  ]);
  const takes = (fromMs: number, toMs: number): number[] =>
    outcomes
      .filter(({ arrivalMs }) => arrivalMs >= fromMs && arrivalMs < toMs)
      .map(({ arrivalMs, endMs }) => endMs - arrivalMs);
  // As profiled: 10 / 4 ** 0.7 on four threads, and 12 ms on one of four instances at work.
  expect(takes(40_000, 60_000).every((ms) => Math.abs(ms - 10 / 4 ** 0.7) < 1e-3)).toBe(true);
  expect(Math.max(...takes(80_000, 90_000))).toBeLessThan(20);
});

test('no call waits for a change, and one that has no memory costs none', () => {
  const load = { cores: 4, batchMax: 1, phases: [phase(0, 60, 10)] };
  const done = replayed({ ...load, memorySessions: 2 });
  expect(done.changes.map(({ outcome }) => outcome)).toEqual(['done']);
  const refused = replayed({ ...load, memorySessions: 1 });
  expect(refused.changes.length).toBeGreaterThan(1);
  expect(refused.changes.every(({ outcome }) => outcome === 'refused')).toBe(true);
  for (const { outcomes } of [done, refused])
    for (const { arrivalMs, endMs } of outcomes.slice(10)) expect(endMs - arrivalMs).toBeLessThan(10.001);
});

test('a function without calls gives its cores back, and is on demand again', () => {
  const { outcomes, events } = replayed({
    cores: 4,
    batchMax: 1,
    memorySessions: 20,
    phases: [phase(0, 60, 10), phase(1, 400, 5), phase(0, 1, 1)],
  });
  const freeCores = events.flatMap((event) =>
    event.kind === 'place-changed' ? [(event.to as { cores: number }).cores] : [],
  );
  expect(freeCores[0]).toBe(1);
  expect(Math.max(...freeCores.slice(1))).toBe(4);
  // Its session was closed, so its next call makes one.
  expect(outcomes.at(-1)).toMatchObject({ functionIndex: 0, placement: { kind: 'cpu', coldStart: true } });
});

const isWithin = (value: number, least: number, most: number): boolean => value >= least && value <= most;

const someLoad: fc.Arbitrary<Load> = fc.record({
  cores: fc.integer({ min: 1, max: 4 }),
  batchMax: fc.constantFrom(1, 16),
  memorySessions: fc.integer({ min: 1, max: 12 }),
  phases: fc.array(
    fc
      .tuple(fc.nat({ max: 2 }), fc.constantFrom([2, 300], [15, 60], [15, 300], [40, 5], [320, 0.5], [320, 5]))
      .map(([functionIndex, [seconds, perSecond]]) => phase(functionIndex, seconds, perSecond)),
    { minLength: 1, maxLength: 4 },
  ),
});

test('whatever the load, every call is answered, and lists keep to the cores and to the memory of the machine', () => {
  fc.assert(
    fc.property(someLoad, (load) => {
      const { outcomes, events } = replayed(load);
      expect(outcomes.every(({ placement }) => placement.kind === 'cpu')).toBe(true);
      const mostBytes = load.memorySessions * sessionBytes;
      const places = events.flatMap((event) =>
        event.kind === 'place-changed' ? [event.to as { cores: number; takenBytes: number }] : [],
      );
      expect(places.filter(({ cores }) => !isWithin(cores, 1, load.cores))).toEqual([]);
      expect(places.filter(({ takenBytes }) => !isWithin(takenBytes, 0, mostBytes))).toEqual([]);
      // Nothing is reserved once all changes are over.
      expect(places.at(-1)?.takenBytes ?? 0).toBe(0);
      const sessions = events.filter((event) => event.kind === 'session');
      expect(sessions.filter(({ bytes }) => bytes > mostBytes)).toEqual([]);
      const coresOf = new Map<number, number>();
      const leased = events.flatMap((event) => {
        if (event.kind !== 'sheet-changed') return [];
        const { groups = [] } = event.sheet.cpu!.list ?? {};
        coresOf.set(
          event.functionIndex,
          groups.reduce((sum, { instances, threads }) => sum + instances * threads, 0),
        );
        return [[...coresOf.values()].reduce((sum, cores) => sum + cores, 0)];
      });
      expect(leased.filter((cores) => cores > load.cores)).toEqual([]);
    }),
    { numRuns: 8 },
  );
});
