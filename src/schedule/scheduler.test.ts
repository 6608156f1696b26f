import { describe, expect, test } from 'vitest';
import { offerSheet } from '../../test/support/offers.ts';
import { arrival, Bench, best, finished, kinds, runs } from '../../test/support/scheduler-bench.ts';
import { policies, type Action, type Policy, type SchedulerEvent } from './index.ts';

describe('a GPU', () => {
  test('does not run an invocation that is kept off it, and keeps what it has for the others', () => {
    const bench = new Bench(policies.best);
    const fn = bench.add({ layers: [10] }, { cpu: { latencyMs: 50, cores: 1 } });
    bench.visit(0, 0, fn);
    expect(bench.at(100, arrival(0, fn, { isKeptOffGpus: true }))).toMatchObject([
      { kind: 'run-beside', invocation: 0, decision: { reason: 'only' } },
    ]);
    expect(bench.at(101, arrival(1, fn))).toMatchObject([{ kind: 'run', invocation: 1, start: 'warm' }]);
    bench.at(102, finished(0));
    // The number then belongs to another invocation.
    bench.at(112, finished(1));
    expect(bench.at(120, arrival(0, fn))).toMatchObject([{ kind: 'run', invocation: 0, start: 'warm' }]);
  });

  test('runs one invocation at a time, in the order of arrival', () => {
    const bench = new Bench(policies.artifact);
    const fn = bench.add({ layers: [10] });
    expect(bench.at(0, arrival(0, fn))).toMatchObject([{ kind: 'run', invocation: 0, start: 'cold' }]);
    expect(bench.at(1, arrival(1, fn))).toMatchObject([{ kind: 'wait', invocation: 1, place: 0 }]);
    expect(bench.at(2, arrival(2, fn))).toMatchObject([{ kind: 'wait', invocation: 2, place: 0 }]);
    expect(bench.at(10, { kind: 'loaded', gpu: 0, functionIndex: fn })).toEqual([]);
    expect(bench.at(11, finished(0))).toMatchObject([{ kind: 'run', invocation: 1, start: 'warm', load: null }]);
    expect(bench.at(21, finished(1))).toMatchObject([{ kind: 'run', invocation: 2, predictedEndMs: 31 }]);
  });

  test('serves a higher priority first', () => {
    const bench = new Bench(policies.artifact);
    const low = bench.add({ layers: [1] });
    const high = bench.add({ layers: [1] }, { priority: 5 });
    bench.visit(0, 0, low);
    bench.visit(10, 0, high);
    bench.at(20, arrival(0, low));
    bench.at(21, arrival(1, low));
    bench.at(22, arrival(2, high));
    expect(bench.at(30, finished(0))).toMatchObject([{ kind: 'run', invocation: 2 }]);
  });

  test("uses an invocation's own SLO and priority before its function's", () => {
    const bench = new Bench({ ...policies.artifact, admission: 'shed' });
    const fn = bench.add({ layers: [1] }, { priority: 5, sloMs: 1000 });
    bench.visit(0, 0, fn);
    bench.at(20, arrival(0, fn));
    bench.at(21, arrival(1, fn));
    bench.at(22, arrival(2, fn, { priority: 7 }));
    bench.at(23, arrival(3, fn, { priority: 3 }));
    expect(bench.at(24, arrival(4, fn, { sloMs: 1 }))).toMatchObject([{ kind: 'shed', invocation: 4 }]);
    expect(bench.at(30, finished(0))).toMatchObject([{ kind: 'run', invocation: 2 }]);
    expect(bench.at(40, finished(2))).toMatchObject([{ kind: 'run', invocation: 1 }]);
    expect(bench.at(50, finished(1))).toMatchObject([{ kind: 'run', invocation: 3 }]);
    // The number is free again, and its old priority and SLO are forgotten.
    bench.at(51, arrival(2, fn));
    bench.at(52, arrival(0, fn, { priority: 6 }));
    expect(bench.at(60, finished(3))).toMatchObject([{ kind: 'run', invocation: 0 }]);
  });

  test('runs what is resident while something else is being loaded', () => {
    const bench = new Bench(best);
    const cold = bench.add({ layers: [50] });
    const warm = bench.add({ layers: [10] });
    bench.visit(0, 0, warm);
    expect(bench.at(10, arrival(0, cold))).toMatchObject([
      { kind: 'load', invocation: 0, functionIndex: cold },
      // 50 ms of loading and 1 of execution after it, of which 10 can be behind it.
      { kind: 'wake', atMs: 10 + 51 - 10 },
      { kind: 'wait', invocation: 0 },
    ]);
    expect(bench.at(11, arrival(1, warm))).toMatchObject([{ kind: 'run', invocation: 1, start: 'warm' }]);
    expect(bench.at(21, finished(1))).toEqual([]);
    expect(bench.at(51, { kind: 'wake' })).toMatchObject([{ kind: 'run', invocation: 0, start: 'cold', load: null }]);
  });

  test('serves calls that can still meet their SLO first; one in seventeen starts is a call that waits beyond the bound', () => {
    const bench = new Bench({ ...best, waitBoundMs: 25 });
    const fn = bench.add({ layers: [10] }, { sloMs: 1000 });
    bench.visit(0, 0, fn);
    bench.at(10, arrival(0, fn));
    // No place can run it within 5 ms.
    bench.at(11, arrival(1, fn, { sloMs: 5 }));
    const served: number[] = [];
    let nowMs = 20;
    let running = 0;
    for (let next = 2; next < 40; next++) {
      bench.at(nowMs - 1, arrival(next, fn));
      [running] = runs(bench.at(nowMs, finished(running))) as [number];
      served.push(running);
      nowMs += 10;
    }
    // Two starts were before the first of these.
    expect(served.indexOf(1)).toBe(14);
    expect(served.filter((invocation) => invocation !== 1)).toEqual(
      Array.from({ length: 37 }, (_, index) => index + 2),
    );
  });

  test('keeps a function with many invocations from making those with few late', () => {
    const bench = new Bench(best);
    const [hot, quiet] = [bench.add({ layers: [10] }), bench.add({ layers: [10] })];
    bench.visit(0, 0, hot);
    bench.visit(50, 0, quiet);
    for (let index = 0; index < 20; index++) bench.at(100, arrival(index, hot));
    bench.at(101, arrival(20, quiet));
    let running = 0;
    let nowMs = 100;
    while (running !== 20) [running] = runs(bench.at((nowMs += 10), finished(running))) as [number];
    // 200 ms of the hot function's runs were ahead of it.
    expect(nowMs + 10 - 101).toBeLessThanOrEqual(100);
  });

  test('runs cold invocations that come during a load behind that same load', () => {
    const bench = new Bench(best);
    const fn = bench.add({ layers: [50] });
    bench.at(0, arrival(0, fn));
    expect(kinds(bench.at(5, arrival(1, fn)))).toEqual(['wait']);
    expect(bench.at(50, { kind: 'loaded', gpu: 0, functionIndex: fn })).toMatchObject([
      { kind: 'run', invocation: 0, start: 'cold' },
    ]);
    expect(bench.at(60, finished(0))).toMatchObject([{ kind: 'run', invocation: 1, start: 'warm', load: null }]);
  });
});

/** A call that waited ten milliseconds longer than the scheduler thought, and is late. */
const lateCall = (policy: Policy, admission: Policy['admission']): readonly Action[] => {
  const bench = new Bench(policy);
  const fn = bench.add({ layers: [10] }, { sloMs: 25, admission });
  bench.visit(0, 0, fn);
  bench.at(100, arrival(0, fn));
  bench.at(100, arrival(1, fn));
  return bench.at(120, finished(0));
};

describe('what is late', () => {
  test("a function's own admission holds for a call that becomes late while it waits", () => {
    for (const policy of [policies.best, policies.artifact]) {
      expect(lateCall(policy, 'shed')).toMatchObject([{ kind: 'shed', invocation: 1 }]);
      expect(lateCall({ ...policy, admission: 'shed' }, 'best-effort')).toMatchObject([{ kind: 'run', invocation: 1 }]);
    }
  });

  test('a call of a resident function is not predicted behind a load that ends later', () => {
    const bench = new Bench(policies.best);
    const there = bench.add({ layers: [10] });
    const cold = bench.add({ layers: [50] });
    bench.visit(0, 0, there);
    bench.at(100, arrival(0, cold));
    expect(bench.at(101, arrival(1, there))).toMatchObject([
      { kind: 'run', invocation: 1, predictedEndMs: 111, decision: { chosenEndMs: 111 } },
    ]);
  });
});

describe('changes', () => {
  test('invocations that ran or waited on a lost GPU are placed again, and its residency is gone', () => {
    const bench = new Bench(best, { gpus: 2 });
    const fn = bench.add({ layers: [20] });
    bench.visit(0, 0, fn);
    bench.at(100, arrival(0, fn));
    bench.at(101, arrival(1, fn));
    const actions = bench.at(105, { kind: 'gpu-lost', gpu: 0 });
    expect(actions[0]).toEqual({ kind: 'abandon', functionIndex: fn, gpu: 0 });
    expect(actions).toContainEqual(
      expect.objectContaining({ kind: 'evict', gpu: 0, functionIndex: fn, cause: 'gpu-lost' }),
    );
    expect(actions).toContainEqual(expect.objectContaining({ kind: 'load', gpu: 1, functionIndex: fn }));
    expect(bench.at(125, { kind: 'loaded', gpu: 1, functionIndex: fn })).toMatchObject([
      { kind: 'run', gpu: 1, invocation: 0 },
    ]);
    expect(bench.at(135, finished(0))).toMatchObject([{ kind: 'run', gpu: 1, invocation: 1 }]);
    expect(bench.at(145, { kind: 'gpu-back', gpu: 0 })).toEqual([]);
    expect(bench.scheduler.residentBytes(0)).toBe(0);
  });

  test('without any GPU an invocation goes to the CPU pool or fails', () => {
    const bench = new Bench(policies.artifact, { cpuCores: 1 });
    const gpuOnly = bench.add({ layers: [1] });
    const both = bench.add({ layers: [1] }, { cpu: { latencyMs: 500, cores: 1 } });
    bench.at(0, arrival(0, gpuOnly));
    bench.at(0, arrival(1, both));
    const actions = bench.at(5, { kind: 'gpu-lost', gpu: 0 });
    expect(actions).toContainEqual({ kind: 'fail', invocation: 0, reason: 'nowhere' });
    expect(actions).toContainEqual(
      expect.objectContaining({ kind: 'run-beside', invocation: 1, functionIndex: both, loads: false }),
    );
  });

  test('a new plan with other layers drops what is resident; new times alone keep it', () => {
    const bench = new Bench(best);
    const fn = bench.add({ layers: [20, 20] });
    bench.visit(0, 0, fn);
    const faster = offerSheet(1, { layers: [20, 20], warmMs: 5 });
    expect(bench.at(100, { kind: 'sheet-changed', functionIndex: fn, sheet: faster })).toEqual([]);
    expect(bench.at(101, arrival(0, fn))).toMatchObject([{ kind: 'run', start: 'warm', predictedEndMs: 106 }]);
    const other = offerSheet(1, { layers: [30] });
    // The function runs, so its layers are dropped when the run is over.
    expect(bench.at(102, { kind: 'sheet-changed', functionIndex: fn, sheet: other })).toEqual([]);
    expect(bench.at(106, finished(0))).toMatchObject([{ kind: 'evict', functionIndex: fn, cause: 'plan-changed' }]);
    expect(bench.at(107, arrival(0, fn))).toContainEqual(expect.objectContaining({ kind: 'load' }));
  });

  test('while layers of a former plan are there, a call is predicted behind the load of the new one', () => {
    const bench = new Bench(best);
    const fn = bench.add({ layers: [20, 20] });
    bench.visit(0, 0, fn);
    bench.at(100, arrival(0, fn));
    bench.at(101, { kind: 'sheet-changed', functionIndex: fn, sheet: offerSheet(1, { layers: [30] }) });
    expect(bench.at(102, arrival(1, fn))).toMatchObject([{ kind: 'wait', predictedEndMs: 141 }]);
  });

  test('a late call whose function has no room gets its turn among an endless stream of calls on time', () => {
    const bench = new Bench(best, { capacityBytes: 20 });
    const hot = [bench.add({ layers: [10] }, { sloMs: 100 }), bench.add({ layers: [10] }, { sloMs: 100 })];
    const cold = bench.add({ layers: [10] }, { sloMs: 1 });
    for (const fn of hot) bench.visit(0, 0, fn);
    let invocation = 1;
    const functionOf = new Map<number, number>();
    /** Feeds the event, and carries out all actions that become due by then. */
    const queue: { readonly atMs: number; readonly event: SchedulerEvent }[] = [];
    const tell = (nowMs: number, event: SchedulerEvent): void => {
      for (const action of bench.at(nowMs, event)) {
        const isLoad = (action.kind === 'load' || action.kind === 'run') && action.load !== null;
        if (isLoad) queue.push({ atMs: nowMs + 10, event: { ...action, kind: 'loaded' } });
        if (action.kind === 'run') queue.push({ atMs: nowMs + (isLoad ? 11 : 1), event: finished(action.invocation) });
      }
    };
    const call = (nowMs: number, fn: number): void => {
      functionOf.set(++invocation, fn);
      tell(nowMs, arrival(invocation, fn));
    };
    for (const fn of [...hot, ...hot]) call(1000, fn);
    call(1000, cold);
    const late = invocation;
    let starts = 0;
    let isServed = false;
    while (!isServed && starts < 5000) {
      queue.sort((one, other) => one.atMs - other.atMs);
      const { atMs, event } = queue.shift()!;
      tell(atMs, event);
      if (event.kind !== 'finished') continue;
      starts++;
      isServed = event.invocation === late;
      // Each call that has ended is followed by another of its function.
      call(atMs, functionOf.get(event.invocation)!);
    }
    expect(isServed).toBe(true);
  });

  test('a removed function fails its waiting calls and leaves memory', () => {
    const bench = new Bench(best);
    const fn = bench.add({ layers: [20] });
    bench.visit(0, 0, fn);
    bench.at(100, arrival(0, fn));
    bench.at(100, arrival(1, fn));
    expect(bench.at(101, { kind: 'function-removed', functionIndex: fn })).toEqual([
      { kind: 'fail', invocation: 1, reason: 'removed' },
    ]);
    expect(bench.at(110, finished(0))).toMatchObject([{ kind: 'evict', cause: 'unload', bytes: 20 }]);
    expect(() => bench.at(111, arrival(0, fn))).toThrow(`there is no function ${fn}`);
  });

  test('a caller that goes frees its place', () => {
    const bench = new Bench(policies.artifact);
    const fn = bench.add({ layers: [1] });
    bench.at(0, arrival(0, fn));
    bench.at(1, arrival(1, fn));
    bench.at(2, arrival(2, fn));
    bench.at(3, { kind: 'departed', invocation: 1 });
    bench.at(4, { kind: 'loaded', gpu: 0, functionIndex: fn });
    expect(bench.at(10, finished(0))).toMatchObject([{ kind: 'run', invocation: 2 }]);
    expect(() => bench.at(11, { kind: 'departed', invocation: 1 })).toThrow('invocation 1 does not wait');
  });

  test('an event that cannot be is refused by name', () => {
    const bench = new Bench(best);
    const fn = bench.add({ layers: [1] });
    expect(() => bench.at(0, finished(3))).toThrow('invocation 3 does not run');
    expect(() => bench.at(0, { kind: 'loaded', gpu: 0, functionIndex: fn })).toThrow(
      `function ${fn} is not being loaded to GPU 0`,
    );
    bench.at(0, arrival(0, fn));
    expect(() => bench.at(0, arrival(0, fn))).toThrow('invocation 0 has not ended yet');
    expect(() =>
      bench.at(0, { kind: 'sheet-changed', functionIndex: fn, sheet: offerSheet(2, { layers: [1] }) }),
    ).toThrow(`function ${fn} has offers for 2 GPUs, not 1`);
  });
});
