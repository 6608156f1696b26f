/** Calls that wait for a GPU share a run where the offer has sizes of joined runs. */
import { expect, test } from 'vitest';
import { offerSheet, smallGpus } from '../../test/support/offers.ts';
import { policies, Scheduler, type Action, type OfferSheet, type Policy, type SchedulerEvent } from './index.ts';

/** A single run takes 10 ms, one of up to 4 rows 16 ms. */
const batches = [
  { rows: 2, ms: 12 },
  { rows: 4, ms: 16 },
];

class Bench {
  readonly scheduler: Scheduler;
  #functions = 0;
  #invocations = 0;

  constructor(policy: Policy = policies.best, gpus = 1) {
    this.scheduler = new Scheduler({
      gpus: smallGpus(gpus, 100),
      policy,
      cpu: { cores: 8, memoryBytes: Infinity },
    });
  }

  at(nowMs: number, event: SchedulerEvent): readonly Action[] {
    return this.scheduler.handle(event, nowMs);
  }

  /** A function without weights, so that it is always resident. */
  add(sheet: Partial<OfferSheet> = {}, isJoined = true): number {
    const functionIndex = this.#functions++;
    const shape = { layers: [], warmMs: 10, ...(isJoined && { batches }) };
    this.at(0, { kind: 'function-added', functionIndex, sheet: offerSheet(1, shape, { sloMs: 1000, ...sheet }) });
    return functionIndex;
  }

  arrive(nowMs: number, functionIndex: number, key = 'k', rows = 1, sloMs?: number): readonly Action[] {
    const invocation = this.#invocations++;
    const own = sloMs === undefined ? {} : { sloMs };
    return this.at(nowMs, { kind: 'arrival', invocation, functionIndex, join: { key, rows }, ...own });
  }
}

const runsOf = (actions: readonly Action[]): number[][] =>
  actions.flatMap((action) =>
    action.kind === 'run'
      ? [[action.invocation, ...(action.companions ?? []).map(({ invocation }) => invocation)]]
      : [],
  );

test('calls that came during a run share the next one, up to the largest size', () => {
  const bench = new Bench();
  const fn = bench.add();
  expect(runsOf(bench.arrive(0, fn))).toEqual([[0]]);
  for (let call = 1; call <= 6; call++) expect(runsOf(bench.arrive(1, fn))).toEqual([]);
  const actions = bench.at(10, { kind: 'finished', invocation: 0 });
  expect(actions).toMatchObject([{ kind: 'run', predictedEndMs: 26 }]);
  expect(runsOf(actions)).toEqual([[1, 2, 3, 4]]);
  expect(runsOf(bench.at(26, { kind: 'finished', invocation: 1 }))).toEqual([[5, 6]]);
  expect(bench.at(38, { kind: 'finished', invocation: 5 })).toEqual([]);
});

test('rows count, not calls', () => {
  const bench = new Bench();
  const fn = bench.add();
  bench.arrive(0, fn);
  for (const rows of [2, 2, 1]) bench.arrive(1, fn, 'k', rows);
  expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[1, 2]]);
});

test('calls of another key wait for a run of their own', () => {
  const bench = new Bench();
  const fn = bench.add();
  bench.arrive(0, fn);
  for (const key of ['a', 'b', 'a', 'b']) bench.arrive(1, fn, key);
  expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[1, 3]]);
  expect(runsOf(bench.at(22, { kind: 'finished', invocation: 1 }))).toEqual([[2, 4]]);
});

test('a run takes no more calls than the SLO of each of them leaves time for', () => {
  const bench = new Bench();
  const fn = bench.add();
  bench.arrive(0, fn);
  // Due at 24 ms: there is time for a run of two from 10 ms on, not for one of four.
  bench.arrive(1, fn, 'k', 1, 23);
  for (let call = 0; call < 3; call++) bench.arrive(1, fn);
  expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[1, 2]]);
});

test('a joined run makes no call of another function late', () => {
  const bench = new Bench();
  const [fn, other] = [bench.add(), bench.add({}, false)];
  bench.arrive(0, fn);
  // It has to start at 25 ms, behind a run of two that began at 10 ms.
  bench.arrive(1, other, 'k', 1, 34);
  for (let call = 0; call < 4; call++) bench.arrive(1, fn, 'k', 1, 30);
  expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[2, 3]]);
});

test('nothing is joined where it saves less than a quarter, nor where turns are strictly in order', () => {
  const slow = new Bench();
  const sheet = offerSheet(1, { layers: [], warmMs: 10, batches: [{ rows: 2, ms: 16 }] }, { sloMs: 1000 });
  slow.at(0, { kind: 'function-added', functionIndex: 0, sheet });
  const inOrder = new Bench({ ...policies.best, order: 'fifo' });
  inOrder.add();
  for (const bench of [slow, inOrder]) {
    for (let call = 0; call < 3; call++) bench.arrive(0, 0);
    expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[1]]);
  }
});

test('calls of a refused run are all placed elsewhere, and those of a lost GPU too', () => {
  for (const event of [
    { kind: 'refused', invocation: 1 },
    { kind: 'gpu-lost', gpu: 0 },
  ] as const) {
    const bench = new Bench();
    const fn = bench.add({ cpu: { latencyMs: 50, cores: 1 } });
    for (let call = 0; call < 4; call++) bench.arrive(0, fn);
    expect(runsOf(bench.at(10, { kind: 'finished', invocation: 0 }))).toEqual([[1, 2, 3]]);
    const placed = bench.at(11, event).filter(({ kind }) => kind === 'run-beside');
    expect(placed).toMatchObject([{ invocation: 1 }, { invocation: 2 }, { invocation: 3 }]);
  }
});

test('the end of a joined run is reported for its first call alone', () => {
  const bench = new Bench();
  const fn = bench.add();
  for (let call = 0; call < 3; call++) bench.arrive(0, fn);
  bench.at(10, { kind: 'finished', invocation: 0 });
  expect(() => bench.at(22, { kind: 'finished', invocation: 2 })).toThrow('invocation 2 does not run');
  bench.at(22, { kind: 'finished', invocation: 1 });
  // Its number is free.
  expect(runsOf(bench.at(30, { kind: 'arrival', invocation: 2, functionIndex: fn }))).toEqual([[2]]);
});

test('a call is not sent away for calls before it that will share a run', () => {
  const bench = new Bench();
  const fn = bench.add({ cpu: { latencyMs: 5, cores: 1 }, sloMs: 40 });
  // One by one the fifth would end at 50 ms; with the three before it in one run it ends at 36 at the latest.
  const last = Array.from({ length: 5 }, () => bench.arrive(0, fn)).at(-1);
  expect(last).toMatchObject([{ kind: 'wait', place: 0 }]);
});
