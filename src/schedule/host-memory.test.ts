/** Host memory between the disk and the GPUs: what is read, when it can be loaded, and what goes for it. */
import { expect, test } from 'vitest';
import { offerSheet, smallGpus } from '../../test/support/offers.ts';
import { policies, Scheduler, type Action, type HostBlock, type Policy, type SchedulerEvent } from './index.ts';

/** A link carries a byte in a millisecond, the disk a byte in ten. */
const diskGBps = 1e-7;
const copied = (bytes: number): HostBlock => ({ bytes });
const executed = (bytes: number): HostBlock => ({ bytes, isExecuted: true });

function hostOf(capacityBytes: number, gpuBytes = 100, policy: Partial<Policy> = {}) {
  const scheduler = new Scheduler({
    gpus: smallGpus(1, gpuBytes),
    policy: { ...policies.best, waitBoundMs: 10_000, ...policy },
    cpu: null,
    host: { capacityBytes, diskGBps },
  });
  let calls = 0;
  const tell = (atMs: number, event: SchedulerEvent): readonly Action[] => scheduler.handle(event, atMs);
  return {
    scheduler,
    tell,
    add: (functionIndex: number, hostBlocks: readonly HostBlock[], sloMs = 10_000) =>
      tell(0, {
        kind: 'function-added',
        functionIndex,
        sheet: offerSheet(1, { layers: [20], warmMs: 1 }, { hostBlocks, sloMs }),
      }),
    call: (functionIndex: number, atMs: number) => tell(atMs, { kind: 'arrival', invocation: calls++, functionIndex }),
    staged: (functionIndex: number, atMs: number) => tell(atMs, { kind: 'staged', functionIndex }),
    loaded: (functionIndex: number, atMs: number) => tell(atMs, { kind: 'loaded', gpu: 0, functionIndex }),
    finished: (invocation: number, atMs: number) => tell(atMs, { kind: 'finished', invocation }),
  };
}

/** Function 0 has these blocks now. */
const changed = (hostBlocks: readonly HostBlock[]): SchedulerEvent => ({
  kind: 'sheet-changed',
  functionIndex: 0,
  sheet: offerSheet(1, { layers: [20], warmMs: 1 }, { hostBlocks }),
});

const kinds = (actions: readonly Action[]): string[] => actions.map(({ kind }) => kind);
const stagesOf = (actions: readonly Action[]) =>
  actions.flatMap((action) => (action.kind === 'stage' ? [[action.functionIndex, action.bytes]] : []));
const goneOf = (actions: readonly Action[]) =>
  actions.flatMap((action) => (action.kind === 'evict-host' ? [[action.functionIndex, action.bytes]] : []));

test('a load begins so that it ends with the read, and keeps its link from nobody before', () => {
  const { add, call, tell } = hostOf(100);
  add(0, [copied(20)]);
  const actions = call(0, 0);
  expect(stagesOf(actions)).toEqual([[0, 20]]);
  // 200 ms of the disk, of which the link needs the last 20.
  expect(actions).toContainEqual({ kind: 'wake', atMs: 180 });
  expect(kinds(tell(179, { kind: 'wake' }))).not.toContain('load');
  const [load] = tell(180, { kind: 'wake' });
  expect(load).toMatchObject({ kind: 'load', functionIndex: 0 });
});

test('a cold start from disk is predicted to take the longer of disk and link, and the execution behind them', () => {
  const { scheduler, add, call } = hostOf(100);
  add(0, [copied(20)]);
  expect(scheduler.predictEnd(0, 0, 0)).toBe(201);
  call(0, 0);
  // Behind the call that waits.
  expect(scheduler.predictEnd(0, 0, 100)).toBe(202);
});

test('room is taken for the function that is read and the next one only', () => {
  const { add, call, staged } = hostOf(100);
  for (const each of [0, 1, 2, 3]) add(each, [copied(20)]);
  expect([0, 1, 2, 3].flatMap((each) => stagesOf(call(each, 0)))).toEqual([
    [0, 20],
    [1, 20],
  ]);
  expect(stagesOf(staged(0, 200))).toHaveLength(1);
});

test('what is whole on a GPU leaves host memory without leaving the GPU, but not what it executes from', () => {
  const { scheduler, add, call, staged, loaded, finished } = hostOf(45);
  add(0, [copied(20), executed(5)]);
  add(1, [copied(20), executed(5)]);
  call(0, 0);
  staged(0, 250);
  loaded(0, 270);
  finished(0, 271);
  expect(goneOf(call(1, 300))).toEqual([[0, 20]]);
  expect(scheduler.residentBytes(0)).toBe(20);
  expect(kinds(call(0, 301))).toEqual(['run']);
});

test('a function that its GPU alone has is evicted there after one that host memory has too', () => {
  const { add, call, staged, loaded, finished } = hostOf(45, 40);
  for (const each of [0, 1, 2]) add(each, [copied(20)]);
  call(0, 0);
  staged(0, 200);
  loaded(0, 220);
  finished(0, 221);
  // Called less, and less lately.
  for (const [at, invocation] of [
    [300, 1],
    [310, 2],
  ] as const) {
    call(0, at);
    finished(invocation, at + 1);
  }
  call(1, 400);
  staged(1, 600);
  loaded(1, 620);
  finished(3, 621);
  // There is room for two: the copy of function 0 goes, since it is called most.
  expect(goneOf(call(2, 700))).toEqual([[0, 20]]);
  const load = staged(2, 900).find(({ kind }) => kind === 'evict');
  expect(load).toMatchObject({ functionIndex: 1, gpu: 0 });
});

test('a block that functions share is read once, and leaves with the last of them', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(100);
  const base: HostBlock = { id: 'base', bytes: 15 };
  add(0, [base, copied(5)]);
  add(1, [base, copied(5)]);
  expect(stagesOf(call(0, 0))).toEqual([[0, 20]]);
  staged(0, 200);
  expect(stagesOf(call(1, 300))).toEqual([[1, 5]]);
  staged(1, 350);
  loaded(0, 400);
  finished(0, 401);
  loaded(1, 420);
  finished(1, 421);
  expect(goneOf(tell(500, { kind: 'function-removed', functionIndex: 0 }))).toEqual([[0, 5]]);
  const last = goneOf(tell(600, { kind: 'function-removed', functionIndex: 1 }));
  expect(last.map(([, bytes]) => bytes)).toEqual([15, 5]);
});

test('nothing goes for what is called less, until its call has waited beyond the bound in an idle disk', () => {
  const { add, call, tell } = hostOf(20);
  add(0, [copied(20)]);
  add(1, [copied(20)]);
  tell(0, { kind: 'host-filled', functions: [{ functionIndex: 0, share: 0.9 }] });
  const first = call(1, 0);
  expect(stagesOf(first)).toEqual([]);
  expect(first).toContainEqual({ kind: 'wake', atMs: 10_000 });
  const later = tell(10_000, { kind: 'wake' });
  expect([goneOf(later), stagesOf(later)]).toEqual([[[0, 20]], [[1, 20]]]);
});

test('a place that has no room in one piece gets one more block, and the read again', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(50);
  add(0, [copied(20)]);
  add(1, [copied(20)]);
  call(0, 0);
  staged(0, 200);
  loaded(0, 220);
  finished(0, 221);
  expect(stagesOf(call(1, 300))).toEqual([[1, 20]]);
  const again = tell(301, { kind: 'stage-refused', functionIndex: 1 });
  expect([goneOf(again), stagesOf(again)]).toEqual([[[0, 20]], [[1, 20]]]);
});

test('a place that has no room though nothing can go is asked once a second', () => {
  const { add, call, tell } = hostOf(50);
  add(0, [copied(20)]);
  expect(stagesOf(call(0, 0))).toEqual([[0, 20]]);
  expect(stagesOf(tell(1, { kind: 'stage-refused', functionIndex: 0 }))).toEqual([]);
  expect(stagesOf(tell(500, { kind: 'wake' }))).toEqual([]);
  expect(stagesOf(tell(1001, { kind: 'wake' }))).toEqual([[0, 20]]);
});

test('what is lost with the process is read again', () => {
  const { add, call, staged, tell } = hostOf(50);
  for (const each of [0, 1, 2]) add(each, [copied(20)]);
  call(0, 0);
  staged(0, 200);
  tell(300, { kind: 'gpu-lost', gpu: 0 });
  expect(stagesOf(tell(300, { kind: 'host-lost' }))).toEqual([[0, 20]]);
});

test('what the place holds is read at the cost of what is worth less, and stays until it is held no more', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(40);
  for (const each of [0, 1, 2]) add(each, [copied(20)]);
  const hold = (functionIndex: number, isHeld: boolean, atMs: number) =>
    tell(atMs, { kind: 'host-held', functionIndex, isHeld });
  for (const each of [0, 1]) {
    expect(stagesOf(hold(each, true, each * 300))).toEqual([[each, 20]]);
    staged(each, each * 300 + 200);
  }
  // Nothing goes for a call either, as long as both are held.
  expect(stagesOf(call(2, 1000))).toEqual([]);
  const released = hold(0, false, 1001);
  expect([goneOf(released), stagesOf(released)]).toEqual([[[0, 20]], [[2, 20]]]);
  staged(2, 1201);
  loaded(2, 1221);
  finished(0, 1222);
  hold(1, false, 1300);
  // The copy goes of what its GPU has as well, though nothing was called for the other one.
  const held = hold(0, true, 1301);
  expect([goneOf(held), stagesOf(held)]).toEqual([[[2, 20]], [[0, 20]]]);
});

test('a read that is refused behind the load of its function comes before all others, whatever goes for it', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(45, 60);
  for (const each of [0, 1, 2]) add(each, [copied(20)]);
  for (const each of [0, 1]) {
    call(each, each * 1000);
    staged(each, each * 1000 + 200);
    loaded(each, each * 1000 + 220);
    finished(each, each * 1000 + 221);
  }
  expect(stagesOf(call(2, 2000))).toEqual([[2, 20]]);
  expect(kinds(tell(2180, { kind: 'wake' }))).toContain('load');
  const again = tell(2190, { kind: 'stage-refused', functionIndex: 2 });
  expect([goneOf(again).length, stagesOf(again)]).toEqual([1, [[2, 20]]]);
});

test('what is held in vain is read by an idle disk after a second, whatever goes for it', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(25, 20);
  add(0, [copied(15), executed(5)]);
  add(1, [copied(20)]);
  call(0, 0);
  staged(0, 200);
  loaded(0, 220);
  finished(0, 221);
  // A called function that is not whole on its GPU is worth more than one that was never called.
  tell(300, { kind: 'gpu-lost', gpu: 0 });
  tell(300, { kind: 'gpu-back', gpu: 0 });
  expect(stagesOf(tell(400, { kind: 'host-held', functionIndex: 1, isHeld: true }))).toEqual([]);
  const later = tell(1400, { kind: 'wake' });
  expect([goneOf(later).length > 0, stagesOf(later)]).toEqual([true, [[1, 20]]]);
});

test('what is held, and was being read when host memory was lost, is read again', () => {
  const { add, tell } = hostOf(25);
  add(0, [copied(20)]);
  expect(stagesOf(tell(0, { kind: 'host-held', functionIndex: 0, isHeld: true }))).toEqual([[0, 20]]);
  tell(100, { kind: 'gpu-lost', gpu: 0 });
  expect(stagesOf(tell(100, { kind: 'host-lost' }))).toEqual([[0, 20]]);
});

test('what cannot be read gives its room back, and is read again after a second, or with the next call', () => {
  const { scheduler, add, call, tell } = hostOf(50);
  add(0, [copied(20)]);
  expect(stagesOf(call(0, 0))).toEqual([[0, 20]]);
  expect(stagesOf(tell(100, { kind: 'stage-failed', functionIndex: 0 }))).toEqual([]);
  expect(scheduler.hostBytes).toBe(0);
  expect(stagesOf(tell(1099, { kind: 'wake' }))).toEqual([]);
  expect(stagesOf(tell(1100, { kind: 'wake' }))).toEqual([[0, 20]]);
  expect(stagesOf(tell(1200, { kind: 'stage-failed', functionIndex: 0 }))).toEqual([]);
  expect(stagesOf(call(0, 1300))).toEqual([[0, 20]]);
});

test('a GPU that could run another call does not wait for a function whose read failed behind its load', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(100, 100, { loadAhead: false });
  add(0, [copied(20), executed(10)], 0.5);
  add(1, [copied(20)], 0.5);
  call(1, 0);
  staged(1, 200);
  loaded(1, 220);
  finished(0, 221);
  // The first call of function 0 is loaded while the rest is read; those of function 1 run beside it.
  call(0, 1000);
  call(1, 1279);
  tell(1280, { kind: 'wake' });
  for (const [at, each] of [1, 0, 1].entries()) call(each, 1281 + at);
  expect(finished(2, 1285)).toMatchObject([{ kind: 'run', functionIndex: 0, start: 'disk' }]);
  loaded(0, 1290);
  expect(finished(1, 1291)).toMatchObject([{ kind: 'run', functionIndex: 1, invocation: 3 }]);
  tell(1292, { kind: 'stage-failed', functionIndex: 0 });
  expect(finished(3, 1293)).toMatchObject([{ kind: 'run', functionIndex: 1, invocation: 5 }]);
});

test('what is here stays when a new plan divides it into other blocks, and a function that comes again is read again', () => {
  const { scheduler, add, call, staged, loaded, finished, tell } = hostOf(50);
  add(0, [copied(20)]);
  call(0, 0);
  staged(0, 200);
  loaded(0, 220);
  finished(0, 221);
  expect(kinds(tell(300, changed([copied(15), executed(5)])))).toEqual([]);
  expect([scheduler.isInHostMemory(0), scheduler.hostBytes]).toEqual([true, 20]);
  expect(goneOf(tell(400, changed([])))).toHaveLength(2);
  expect(stagesOf(tell(500, changed([copied(20)])))).toEqual([[0, 20]]);
});

test('when host memory shrinks, the least valuable goes', () => {
  const { add, call, staged, loaded, finished, tell } = hostOf(60);
  for (const each of [0, 1]) {
    add(each, [copied(20)]);
    call(each, each * 1000);
    staged(each, each * 1000 + 200);
    loaded(each, each * 1000 + 220);
    finished(each, each * 1000 + 221);
  }
  expect(goneOf(tell(3000, { kind: 'host-changed', capacityBytes: 20 }))).toHaveLength(1);
});

test('how long a byte takes is learnt apart for files in the page cache and others', () => {
  const { scheduler, add, call, loaded, finished, tell } = hostOf(60);
  add(0, [copied(20)]);
  add(1, [copied(20)]);
  call(0, 0);
  tell(400, { kind: 'staged', functionIndex: 0, observed: { ms: 400, isCached: false } });
  loaded(0, 420);
  finished(0, 421);
  const uncachedMs = scheduler.predictEnd(1, 0, 5000) - 5000;
  expect(uncachedMs).toBeGreaterThan(201);
  call(1, 5000);
  tell(5010, { kind: 'staged', functionIndex: 1, observed: { ms: 10, isCached: true } });
  loaded(1, 5030);
  finished(1, 5031);
  add(2, [copied(20)]);
  expect(Math.abs(scheduler.predictEnd(2, 0, 9000) - 9000 - uncachedMs)).toBeLessThan(5);
});

test('a function that executes all of its weights from host memory is read before it runs', () => {
  const { scheduler, tell, call, staged } = hostOf(50);
  tell(0, {
    kind: 'function-added',
    functionIndex: 0,
    sheet: offerSheet(1, { layers: [], warmMs: 1 }, { hostBlocks: [executed(20)], sloMs: 10_000 }),
  });
  const actions = call(0, 0);
  expect(stagesOf(actions)).toEqual([[0, 20]]);
  expect(kinds(actions)).not.toContain('run');
  expect(scheduler.waitingCount(0)).toBe(1);
  expect(kinds(staged(0, 200))).toEqual(['run']);
});
