import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { arrival, Bench, best, finished, kinds, runs } from '../../test/support/scheduler-bench.ts';
import { policies, type Action, type OfferSheet } from './index.ts';

/** A call that ends 100 ms later behind the run on its GPU, and 11 ms later on the other, where 95 bytes go for it. */
function behindRun(sloMs: number, quickMs: number, cpu: OfferSheet['cpu'] = null): readonly Action[] {
  const bench = new Bench(policies.best, { gpus: 2 });
  const onFirst = bench.add({ layers: [80], warmMs: 90 }, { sloMs }, 0);
  const [one, other] = [0, 1].map(() => bench.add({ layers: [95] }, { sloMs }, 1)) as [number, number];
  const quick = bench.add({ layers: [10] }, { sloMs: quickMs, cpu });
  for (const [turn, fn] of [one, other, one, other, one].entries()) bench.visit(turn * 200, 0, fn);
  bench.visit(1000, 0, onFirst);
  bench.visit(1200, 0, quick);
  expect(bench.scheduler.residentPrefix(quick, 0)).toBe(1);
  bench.at(5000, arrival(0, onFirst));
  return bench.at(5001, arrival(1, quick));
}

describe('routing', () => {
  test('by modulo goes by number, to the next GPU when that one is down', () => {
    const bench = new Bench(policies.artifact, { gpus: 4 });
    for (let index = 0; index < 6; index++) bench.add({ layers: [1] });
    expect(bench.at(0, arrival(0, 5))).toMatchObject([{ kind: 'run', gpu: 1 }]);
    bench.at(1, { kind: 'gpu-lost', gpu: 2 });
    expect(bench.at(2, arrival(1, 2))).toMatchObject([{ kind: 'run', gpu: 3 }]);
  });

  test('puts new functions where there is most room, and goes back to where they are', () => {
    const bench = new Bench(best, { gpus: 2 });
    const [a, b] = [bench.add({ layers: [50] }), bench.add({ layers: [30] })];
    bench.visit(0, 0, a);
    bench.visit(100, 0, b);
    expect(bench.scheduler.residentPrefix(a, 0)).toBe(1);
    expect(bench.scheduler.residentPrefix(b, 1)).toBe(1);
    bench.at(200, arrival(0, a));
    expect(bench.at(201, arrival(1, a))).toMatchObject([{ kind: 'wait', invocation: 1, place: 0 }]);
  });

  test('makes a second copy when the wait costs more than the load, and drops it first', () => {
    const bench = new Bench(best, { gpus: 2 });
    const hot = bench.add({ layers: [20] });
    bench.visit(0, 0, hot);
    const where = Array.from({ length: 6 }, (_, index) => {
      bench.at(100, arrival(index, hot));
      return bench.scheduler.residentPrefix(hot, 1);
    });
    // The load takes 21 ms with the run: the third arrival would end 30 ms later, and goes to the other GPU.
    expect(where).toEqual([0, 0, 1, 1, 1, 1]);
    let nowMs = 120;
    let actions = bench.at(nowMs, { kind: 'loaded', gpu: 1, functionIndex: hot });
    const running = [0, ...runs(actions)];
    const ended: number[] = [];
    for (let next = running.shift(); next !== undefined; next = running.shift()) {
      actions = bench.at((nowMs += 10), finished(next));
      ended.push(next);
      running.push(...runs(actions));
    }
    expect(ended.sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5]);
    const big = bench.add({ layers: [90] });
    expect(bench.at(500, arrival(9, big))).toContainEqual(
      expect.objectContaining({ kind: 'evict', functionIndex: hot, cause: 'migration' }),
    );
  });

  test.each([
    ['a short SLO', 210],
    ['the same SLO as others', 11.5],
  ])(
    'makes a copy for a call of %s that would be late, though what goes for it costs more than that SLO',
    (_, sloMs) => {
      expect(behindRun(sloMs, 11.5)).toContainEqual(expect.objectContaining({ kind: 'load', gpu: 1 }));
    },
  );

  test('makes no copy for a call that the CPU answers in time', () => {
    expect(kinds(behindRun(11.5, 11.5, { latencyMs: 11.4, cores: 1 }))).toEqual(['run-beside']);
  });

  test('fails an invocation that no GPU can hold and no CPU pool takes', () => {
    const bench = new Bench(best);
    const huge = bench.add({ layers: [101] });
    expect(bench.at(0, arrival(0, huge))).toEqual([{ kind: 'fail', invocation: 0, reason: 'nowhere' }]);
    const onCpu = bench.add({ layers: [101] }, { cpu: { latencyMs: 500, cores: 1 } });
    expect(bench.at(1, arrival(0, onCpu))).toMatchObject([{ kind: 'run-beside', invocation: 0, functionIndex: onCpu }]);
  });
});

describe('objectives', () => {
  test('an invocation that would miss its SLO is shed when the setting says so', () => {
    const bench = new Bench({ ...best, admission: 'shed' });
    const fn = bench.add({ layers: [1] }, { sloMs: 25 });
    bench.visit(0, 0, fn);
    expect(kinds(bench.at(100, arrival(0, fn)))).toEqual(['run']);
    expect(kinds(bench.at(100, arrival(1, fn)))).toEqual(['wait']);
    expect(bench.at(100, arrival(2, fn))).toMatchObject([{ kind: 'shed', invocation: 2 }]);
    // The run took longer than predicted: the waiting call would be late as well.
    expect(bench.at(120, finished(0))).toMatchObject([{ kind: 'shed', invocation: 1 }]);
  });

  test.each([
    ['never', ['run', 'wait', 'wait', 'wait']],
    ['on-overload', ['run', 'wait', 'run-beside', 'wait']],
  ] as const)('offloading %s', (offload, expected) => {
    const bench = new Bench({ ...policies.artifact, offload }, { cpuCores: 1 });
    const fn = bench.add({ layers: [1] }, { cpu: { latencyMs: 20, cores: 1 }, sloMs: 20 });
    bench.visit(0, 0, fn);
    // The third would end after 30 ms on the GPU and after 20 on the CPU; the fourth would be late on both.
    const decided = [0, 1, 2, 3].flatMap((invocation) => kinds(bench.at(90, arrival(invocation, fn))));
    expect(decided).toEqual(expected);
  });

  test.each([
    ['a call that later ones keep from the link goes to the CPU at the last instant that leaves it time', true],
    ['a call that nobody keeps from the link stays at that instant', false],
  ])('%s', (_, isPassed) => {
    const bench = new Bench(policies.best, { cpuCores: 1 });
    const first = bench.add({ layers: [60] }, { sloMs: 1000 });
    const urgent = bench.add({ layers: [30] }, { sloMs: 94 });
    const fn = bench.add({ layers: [30] }, { cpu: { latencyMs: 40, cores: 1 } });
    bench.at(0, arrival(0, first));
    // Behind 60 ms of loading it would end after 91.
    expect(bench.at(0, arrival(1, fn))).toMatchObject([
      { kind: 'wait', place: 0, predictedEndMs: 91 },
      { kind: 'wake', atMs: 60 },
    ]);
    // Due a millisecond before it, so its load is next, and the other call would end after 121.
    if (isPassed) bench.at(5, arrival(2, urgent));
    const offloaded = bench.at(60, { kind: 'wake' }).filter(({ kind }) => kind === 'run-beside');
    const decision = { reason: 'slo', otherPlace: 0 };
    expect(offloaded).toMatchObject(isPassed ? [{ invocation: 1, predictedEndMs: 100, decision }] : []);
  });

  test('a GPU with a few free bytes is not preferred', () => {
    const bench = new Bench(policies.best, { gpus: 2 });
    // GPU 0 is full, and GPU 1 has 10 bytes free.
    const full = [0, 1].map(() => bench.add({ layers: [50], msPerByte: 0.2 }, {}, 0));
    const [busy, other] = [0, 1].map(() => bench.add({ layers: [45], msPerByte: 0.2 }, {}, 1));
    const added = bench.add({ layers: [50], msPerByte: 0.2 }, {}, 0);
    let nowMs = 0;
    for (let round = 0; round < 20; round++)
      for (const each of [...full, busy!, other!]) bench.visit((nowMs += 100), 0, each);
    // Evicting for a load costs something.
    bench.visit((nowMs += 100), 0, added);
    bench.visit((nowMs += 100), 0, full[0]!);
    bench.at((nowMs += 100), arrival(0, busy!));
    const fn = bench.add({ layers: [50], msPerByte: 0.2 });
    expect(bench.at(nowMs, arrival(1, fn))).toContainEqual(expect.objectContaining({ kind: 'load', gpu: 0 }));
  });

  test('the earliest finish decides between GPU and CPU when the setting says so', () => {
    const bench = new Bench({ ...policies.artifact, offload: 'earliest-finish' }, { cpuCores: 2 });
    const fn = bench.add({ layers: [40] }, { cpu: { latencyMs: 20, cores: 1 } });
    // 41 ms cold on the GPU.
    expect(kinds(bench.at(0, arrival(0, fn)))).toEqual(['run-beside']);
    expect(kinds(bench.at(0, arrival(1, fn)))).toEqual(['run-beside']);
    // Both cores are taken for 20 ms: another would end after 40, still before the GPU.
    expect(kinds(bench.at(0, arrival(2, fn)))).toEqual(['wait']);
    expect(kinds(bench.at(0, arrival(3, fn)))).toEqual(['run']);
  });
});

describe('the CPU', () => {
  const never = { layers: [1000] };

  test('a second run in a session that is still being made is expected to wait for the rest of that', () => {
    const bench = new Bench(policies.best, { cpuCores: 2 });
    const fn = bench.add(never, { cpu: { latencyMs: 20, cores: 1, loadMs: 50, bytes: 10 } });
    expect(bench.at(0, arrival(0, fn))).toMatchObject([{ kind: 'run-beside', loads: true, predictedEndMs: 70 }]);
    expect(bench.at(10, arrival(1, fn))).toMatchObject([{ kind: 'run-beside', loads: false, predictedEndMs: 70 }]);
    bench.at(70, finished(0));
    expect(bench.at(70, arrival(2, fn))).toMatchObject([{ kind: 'run-beside', loads: false, predictedEndMs: 90 }]);
  });

  test("an instance of the function's own is not behind calls that wait for the cores", () => {
    const bench = new Bench(policies.best);
    const shared = bench.add(never, { cpu: { latencyMs: 20, cores: 1 }, sloMs: 30 });
    const leased = bench.add(never, {
      cpu: { latencyMs: 20, cores: 1, list: { groups: [{ instances: 1, threads: 1, batch: 1 }] } },
      sloMs: 500,
    });
    expect(kinds(bench.at(0, arrival(0, shared)))).toEqual(['run-beside']);
    expect(kinds(bench.at(0, arrival(1, shared)))).toEqual(['wait']);
    expect(kinds(bench.at(1, arrival(2, leased)))).toEqual(['run-beside']);
    expect(kinds(bench.at(2, arrival(3, leased)))).toEqual(['wait']);
    expect(bench.at(21, finished(2))).toMatchObject([{ kind: 'run-beside', invocation: 3 }]);
  });

  test("what runs on a function's own instances, all of it, is what its next call waits for, and idle cores are not", () => {
    fc.assert(
      fc.property(
        fc.record({
          slots: fc.integer({ min: 1, max: 4 }),
          calls: fc.integer({ min: 1, max: 12 }),
          cores: fc.integer({ min: 1, max: 4 }),
          latencyMs: fc.integer({ min: 1, max: 50 }),
        }),
        ({ slots, calls, cores, latencyMs }) => {
          const bench = new Bench(policies.best, { cpuCores: cores });
          const list = { groups: [{ instances: slots, threads: 1, batch: 1 }] };
          const leased = bench.add(never, { cpu: { latencyMs, cores: 1, list }, sloMs: 1e4 });
          const shared = bench.add(never, { cpu: { latencyMs, cores: 1 }, sloMs: 1e4 });
          for (let call = 0; call < calls; call++) {
            const startMs = (call * latencyMs) / slots;
            const isFree = call < slots;
            const endMs = bench.scheduler.predictEnd(leased, 'cpu', 0);
            expect(endMs).toBeCloseTo(isFree ? latencyMs : startMs + latencyMs, 6);
            expect(kinds(bench.at(0, arrival(call, leased)))).toEqual([isFree ? 'run-beside' : 'wait']);
          }
          // Its calls, waiting or not, are nothing to the cores that functions share.
          expect(bench.scheduler.predictEnd(shared, 'cpu', 0)).toBe(latencyMs);
          expect(kinds(bench.at(0, arrival(calls, shared)))).toEqual(['run-beside']);
          for (let call = 0; call < calls; call++) {
            const next = bench.at(latencyMs * (call + 1), finished(call));
            expect(next.map((action) => 'invocation' in action && action.invocation)).toEqual(
              call + slots < calls ? [call + slots] : [],
            );
          }
        },
      ),
    );
  });

  test('calls that wait for instances of their own go to the shared cores once the instances are gone', () => {
    const bench = new Bench(policies.best, { cpuCores: 2 });
    const cpu = { latencyMs: 20, cores: 1 };
    const list = { groups: [{ instances: 1, threads: 1, batch: 1 }] };
    const fn = bench.add(never, { cpu: { ...cpu, list } });
    for (let call = 0; call < 4; call++) bench.at(0, arrival(call, fn));
    expect(bench.scheduler.waitingCount('cpu')).toBe(3);
    const sheet = { gpus: [null], cpu, sloMs: 1e4, priority: 0, pinned: false };
    const moved = bench.at(1, { kind: 'sheet-changed', functionIndex: fn, sheet });
    expect(moved.filter(({ kind }) => kind === 'run-beside')).toMatchObject([{ invocation: 1 }, { invocation: 2 }]);
    expect(bench.scheduler.waitingCount('cpu')).toBe(1);
    bench.at(20, finished(0));
    expect(bench.at(21, finished(1))).toMatchObject([{ kind: 'run-beside', invocation: 3 }]);
  });

  test('keeps one function at ten times its capacity from making others late', () => {
    const bench = new Bench(policies.best, { gpus: 0, cpuCores: 1 });
    const cpu = { latencyMs: 25, cores: 1, bytes: 0, loadMs: 0 };
    const loud = bench.add({ layers: [] }, { cpu, sloMs: 300 });
    const quiet = Array.from({ length: 5 }, () =>
      bench.add({ layers: [] }, { cpu: { ...cpu, latencyMs: 1 }, sloMs: 300 }),
    );
    const arrivedMs: number[] = [];
    const functionOf: number[] = [];
    let running: { invocation: number; endMs: number } | undefined;
    let longestQuietMs = 0;
    let [quietDone, loudDone] = [0, 0];
    const take = (nowMs: number, actions: readonly Action[]): void => {
      for (const action of actions) {
        if (action.kind !== 'run-beside') continue;
        running = { invocation: action.invocation, endMs: nowMs + (action.functionIndex === loud ? 25 : 1) };
      }
    };
    for (let nowMs = 0; nowMs < 20_000; nowMs += 0.5) {
      if (running !== undefined && running.endMs <= nowMs) {
        const { invocation } = running;
        running = undefined;
        if (functionOf[invocation] === loud) loudDone++;
        else {
          quietDone++;
          longestQuietMs = Math.max(longestQuietMs, nowMs - arrivedMs[invocation]!);
        }
        take(nowMs, bench.at(nowMs, finished(invocation)));
      }
      const arriving = nowMs % 2.5 === 0 ? [loud] : [];
      if (nowMs % 250 === 0) arriving.push(quiet[(nowMs / 250) % quiet.length]!);
      for (const functionIndex of arriving) {
        arrivedMs.push(nowMs);
        functionOf.push(functionIndex);
        take(nowMs, bench.at(nowMs, arrival(functionOf.length - 1, functionIndex)));
      }
    }
    expect(quietDone).toBe(80);
    expect(longestQuietMs).toBeLessThan(100);
    expect(loudDone).toBeGreaterThan(780);
  });
});
