/** More calls than the CPU can serve, on a virtual clock: no figure here depends on the machine. */
import { describe, expect, test } from 'vitest';
import { playOverload, type Caller, type Count } from '../../test/support/overload-scenes.ts';
import { offerSheet } from '../../test/support/offers.ts';
import { arrival, Bench, best, kinds } from '../../test/support/scheduler-bench.ts';
import { given } from '../tools/index.ts';
import { policies, Scheduler, type Action, type SchedulerEvent } from './index.ts';

/** Two cores serve 77 of its calls in a second. */
const loud = { runMs: 26, sloMs: 300 };
const seeds = [1, 2, 3];

function sum(counts: readonly Count[]): Count {
  const all = { calls: 0, admitted: 0, answered: 0, onTime: 0 };
  for (const one of counts) for (const field of Object.keys(all) as (keyof Count)[]) all[field] += one[field];
  return all;
}

/** Functions with SLOs from 100 to 670 ms, a call in a second each. */
const mixed = Array.from({ length: 20 }, (_, at): Caller => ({
  perSecond: 1,
  runMs: 1 + at,
  sloMs: 100 + 30 * at,
  admission: 'shed',
  isKnown: true,
}));

describe('more calls than the CPU can serve', () => {
  test.each([0, 0.5, 0.9])('at twice the capacity 45 per cent are in the SLO, with runs that vary by %d', (noise) => {
    for (const seed of seeds) {
      const [count] = playOverload({ callers: [{ ...loud, perSecond: 154 }], forMs: 15_000, noise }, seed);
      expect(count!.onTime / count!.calls).toBeGreaterThan(0.45);
    }
  });

  test.each([0.5, 0.9])('of those that are not shed 99 in 100 are in the SLO, with runs that vary by %d', (noise) => {
    const callers = [{ ...loud, perSecond: 770, admission: 'shed' }] as const;
    const all = sum(seeds.flatMap((seed) => playOverload({ callers, forMs: 15_000, fromMs: 1000, noise }, seed)));
    expect(all.onTime / all.admitted).toBeGreaterThan(0.99);
    expect(all.onTime / all.answered).toBeGreaterThan(0.999);
    // And the cores are busy: 2,000 ms of work in a second.
    expect(all.onTime).toBeGreaterThan(0.95 * 77 * 14 * seeds.length);
  });

  test('where runs take what is predicted, every call that is not shed is in the SLO', () => {
    const callers = [{ ...loud, perSecond: 770, admission: 'shed', isKnown: true }] as const;
    for (const seed of seeds) {
      const [count] = playOverload({ callers, forMs: 15_000 }, seed);
      expect(count!.onTime).toBe(count!.admitted);
    }
  });

  test('so are 99.9% beside functions whose calls go before them', () => {
    const callers: Caller[] = [{ ...loud, perSecond: 770, admission: 'shed', isKnown: true }, ...mixed];
    const all = sum(seeds.flatMap((seed) => playOverload({ callers, forMs: 30_000, fromMs: 2000 }, seed)));
    expect(all.onTime / all.admitted).toBeGreaterThan(0.999);
  });

  test.each(['best-effort', 'shed'] as const)(
    '%s: twenty quiet functions beside a loud one keep 99 in 100',
    (admission) => {
      const quiet = Array.from({ length: 20 }, (): Caller => ({ perSecond: 1, runMs: 1, sloMs: 300, admission }));
      const callers: Caller[] = [{ ...loud, perSecond: 770, admission }, ...quiet];
      for (const noise of [0, 0.9]) {
        const all = sum(
          seeds.flatMap((seed) => playOverload({ callers, forMs: 15_000, fromMs: 1000, noise }, seed).slice(1)),
        );
        expect(all.onTime / all.calls).toBeGreaterThan(0.99);
      }
    },
  );

  test('1,100 calls to a function that takes two seconds for each hold up no other function', () => {
    const quiet = Array.from({ length: 4 }, (): Caller => ({ perSecond: 5, runMs: 1, sloMs: 300 }));
    const play = (
      holdMsMax: number,
      stuckSloMs: number,
      stuck: number,
    ): { readonly quiet: Count; readonly stuck: Count } => {
      const loud = Array.from({ length: stuck }, (): Caller => ({
        perSecond: 0,
        burst: 1100,
        runMs: 2000,
        sloMs: stuckSloMs,
      }));
      const all = seeds.flatMap((seed) => [
        playOverload({ callers: [...loud, ...quiet], forMs: 30_000, holdMsMax }, seed),
      ]);
      return {
        stuck: sum(all.flatMap((counts) => counts.slice(0, stuck))),
        quiet: sum(all.flatMap((counts) => counts.slice(stuck))),
      };
    };
    for (const sloMs of [100, 1000, 60_000, Infinity]) {
      const { quiet: on, stuck } = play(100, sloMs, 1);
      expect(on.onTime).toBe(on.calls);
      // And it keeps the two cores that it had.
      expect(stuck.answered).toBe(play(Infinity, sloMs, 1).stuck.answered);
    }
    const { quiet: before } = play(Infinity, 1000, 1);
    expect(before.onTime / before.calls).toBeLessThan(0.5);
    const { quiet: beside } = play(100, 1000, 5);
    expect(beside.onTime / beside.calls).toBeGreaterThan(0.99);
  });

  test('a function that sheds since one run was slow has another one run when sixteen times as long has passed', () => {
    const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 1, memoryBytes: 1 } });
    const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: undefined, cores: 1 }, admission: 'shed' });
    scheduler.handle({ kind: 'function-added', functionIndex: 0, sheet }, 0);
    const arrive = (invocation: number, nowMs: number): readonly string[] =>
      scheduler.handle({ kind: 'arrival', invocation, functionIndex: 0 }, nowMs).map(({ kind }) => kind);
    expect(arrive(0, 0)).toEqual(['run-beside']);
    scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs: 1000 } }, 1000);
    expect(arrive(0, 1001)).toEqual(['shed']);
    expect(arrive(0, 16_999)).toEqual(['shed']);
    expect(arrive(0, 17_000)).toEqual(['run-beside']);
    expect(arrive(1, 17_001)).toEqual(['shed']);
  });
});

test('a core is handed short runs ahead, and long ones one by one', () => {
  for (const [coreMs, atOnce] of [
    [0.5, 5],
    [1.5, 2],
    [3, 1],
  ] as const) {
    const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 1, memoryBytes: 1, aheadMs: 2 } });
    const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: 3, cores: 1 } });
    scheduler.handle({ kind: 'function-added', functionIndex: 0, sheet }, 0);
    scheduler.handle({ kind: 'arrival', invocation: 0, functionIndex: 0 }, 0);
    scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs: 3, coreMs } }, 3);
    const actions = Array.from({ length: 10 }, (_, index) =>
      scheduler.handle({ kind: 'arrival', invocation: index + 1, functionIndex: 0 }, 4),
    ).flat();
    expect(actions.filter(({ kind }) => kind === 'run-beside')).toHaveLength(atOnce);
  }
});

test('a burst of short runs is shed by the time on its core, not by the way of each message', () => {
  // 200 runs of 0.1 ms are 20 ms of a core, though each answer is back after 3 ms.
  for (const [coreMs, sloMs, shed] of [
    [0.1, 50, 0],
    [0.5, 50, 105],
    [undefined, 50, 184],
  ] as const) {
    const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 1, memoryBytes: 1, aheadMs: 2 } });
    const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: 3, cores: 1 }, admission: 'shed' });
    scheduler.handle({ kind: 'function-added', functionIndex: 0, sheet: { ...sheet, sloMs } }, 0);
    scheduler.handle({ kind: 'arrival', invocation: 0, functionIndex: 0 }, 0);
    scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs: 3, ...given({ coreMs }) } }, 3);
    const actions = Array.from({ length: 200 }, (_, invocation) =>
      scheduler.handle({ kind: 'arrival', invocation, functionIndex: 0 }, 4),
    ).flat();
    expect(actions.filter(({ kind }) => kind === 'shed')).toHaveLength(shed);
    expect(scheduler.cpuBacklogMs(4)).toBeCloseTo((200 - shed) * (coreMs ?? 3), 9);
  }
});

/**
 * How many runs end before that of a quiet function's call, which comes at this instant beside a flood of so many calls.
 *
 * @param slos the flood's SLO and the quiet function's
 */
const runsBefore = (flood: number, slos: readonly [number, number], comesAtMs: number): number => {
  const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 1, memoryBytes: 1 } });
  const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: 1, cores: 1 } });
  for (const [functionIndex, sloMs] of slos.entries())
    scheduler.handle({ kind: 'function-added', functionIndex, sheet: { ...sheet, sloMs } }, 0);
  // Callers that call again as soon as they are answered: each run makes place for another call of the flood.
  let [nowMs, next] = [0, 0];
  let actions: readonly Action[] = Array.from({ length: flood }, () =>
    scheduler.handle({ kind: 'arrival', invocation: next++, functionIndex: 0 }, 0),
  ).flat();
  let [quiet, runs] = [-1, 0];
  for (;;) {
    const run = actions.find((action) => action.kind === 'run-beside');
    if (run === undefined) throw new Error('nothing runs');
    if (run.invocation === quiet) return runs;
    if (quiet >= 0) runs++;
    if (quiet < 0 && nowMs >= comesAtMs) {
      quiet = next++;
      scheduler.handle({ kind: 'arrival', invocation: quiet, functionIndex: 1 }, nowMs);
    }
    nowMs++;
    scheduler.handle({ kind: 'arrival', invocation: next++, functionIndex: 0 }, nowMs);
    actions = scheduler.handle({ kind: 'finished', invocation: run.invocation, observed: { runMs: 1 } }, nowMs);
  }
};

describe('calls that wait for a core', () => {
  test('of a function that calls now and then are not behind a flood with the same SLO', () => {
    for (const sloMs of [2000, 5000, 60_000, 1e10, Infinity]) {
      const flood = Math.min(100, sloMs / 50);
      // Only where a step of deadlines begins between them is the flood before it.
      const waits = Array.from({ length: 25 }, (_, at) => runsBefore(flood, [sloMs, sloMs], 150 + 37 * at));
      expect(waits.toSorted((a, b) => a - b)[waits.length >> 1]).toBeLessThanOrEqual(2);
      expect(Math.max(...waits)).toBeLessThan(flood);
    }
  });

  test('go before a flood whose deadlines are later by more than an eighth of its time', () => {
    for (const floodSloMs of [500, 5000, 60_000])
      for (const atMs of [150, 333, 700])
        expect(runsBefore(100, [floodSloMs, floodSloMs / 2], atMs)).toBeLessThanOrEqual(2);
  });

  test('wait for a flood whose deadlines are earlier by more than that', () => {
    for (const sloMs of [500, 5000]) expect(runsBefore(50, [sloMs, 3 * sloMs], 150)).toBeGreaterThan(50);
  });
});

test('a call that waits for memory starts once another session is gone or turns out smaller', () => {
  const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 2, memoryBytes: 100 } });
  const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: 10, cores: 1, loadMs: 10, bytes: 60 } });
  for (const functionIndex of [0, 1]) scheduler.handle({ kind: 'function-added', functionIndex, sheet }, 0);
  const arrive = (invocation: number): readonly string[] =>
    scheduler.handle({ kind: 'arrival', invocation, functionIndex: invocation }, 0).map(({ kind }) => kind);
  expect(arrive(0)).toEqual(['run-beside']);
  expect(arrive(1)).toEqual(['wait']);
  expect(scheduler.handle({ kind: 'session', functionIndex: 0, bytes: 20 }, 5)).toMatchObject([
    { kind: 'run-beside', invocation: 1 },
  ]);
});

test('a session that dies and is made again during runs is closed once, after they have ended', () => {
  const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 3, memoryBytes: 100 } });
  const sheet = offerSheet(0, { layers: [] }, { cpu: { latencyMs: 10, cores: 1, loadMs: 10, bytes: 60 } });
  for (const functionIndex of [0, 1]) scheduler.handle({ kind: 'function-added', functionIndex, sheet }, 0);
  const arrive = (invocation: number, functionIndex: number): readonly string[] =>
    scheduler.handle({ kind: 'arrival', invocation, functionIndex }, 0).map(({ kind }) => kind);
  const finish = (invocation: number): readonly string[] =>
    scheduler.handle({ kind: 'finished', invocation, observed: { runMs: 10 } }, 20).map(({ kind }) => kind);
  for (const invocation of [0, 1]) expect(arrive(invocation, 0)).toEqual(['run-beside']);
  for (const bytes of [0, 60]) scheduler.handle({ kind: 'session', functionIndex: 0, bytes }, 5);
  // Its room is for another function once nothing runs in it any more.
  expect(arrive(2, 1)).toEqual(['wait']);
  expect(finish(0)).toEqual([]);
  const started = finish(1);
  expect(started).toContain('run-beside');
  expect(started.filter((kind) => kind.startsWith('evict'))).toHaveLength(1);
  finish(2);
  expect(arrive(3, 0)).toContain('run-beside');
});

test('a session that was never made is expected to take as long as others for each of its bytes, or less', () => {
  const scheduler = new Scheduler({ gpus: [], policy: policies.best, cpu: { cores: 1, memoryBytes: 1e9 } });
  const add = (functionIndex: number, bytes: number): void => {
    const cpu = { latencyMs: 2, loadMs: undefined, cores: 1, bytes };
    const sheet = offerSheet(0, { layers: [] }, { cpu, admission: 'shed' });
    scheduler.handle({ kind: 'function-added', functionIndex, sheet }, 0);
  };
  const endMs = (functionIndex: number): number => scheduler.predictEnd(functionIndex, 'cpu', 1000);
  add(0, 50e6);
  add(1, 5e6);
  add(2, 500e6);
  scheduler.handle({ kind: 'arrival', invocation: 0, functionIndex: 0 }, 0);
  scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs: 2, loadMs: 400, bytes: 50e6 } }, 402);
  // A tenth of the bytes: 40 ms and the run. Ten times the bytes: no longer than the one that was made.
  expect(endMs(1)).toBeCloseTo(1042, 6);
  expect(endMs(2)).toBeCloseTo(1402, 6);
});

test.each([
  ['the CPU', { cpu: { latencyMs: undefined, cores: 1 } }],
  ['the workers', { cpu: null, others: { workers: { latencyMs: undefined } } }],
])('a function that sheds all its calls after a slow one on %s takes them again after one fast one', (_, offers) => {
  const scheduler = new Scheduler({
    gpus: [],
    policy: { ...policies.best, admission: 'shed' },
    cpu: { cores: 1, memoryBytes: 1e9 },
    workers: { slots: 1, roundTripMs: 0 },
  });
  const sheet = { ...offerSheet(0, { layers: [] }, offers), sloMs: 100 };
  scheduler.handle({ kind: 'function-added', functionIndex: 0, sheet }, 0);
  const arrive = (invocation: number, nowMs: number): readonly Action[] =>
    scheduler.handle({ kind: 'arrival', invocation, functionIndex: 0 }, nowMs);
  const run = { kind: 'run-beside' };
  expect(arrive(0, 0)).toMatchObject([run]);
  scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs: 700 } }, 700);
  // The refusal says when the next call is tried: a trial takes at most one part in sixteen of a core.
  const trialMs = 700 + 16 * 700;
  expect(arrive(1, 800)).toEqual([{ kind: 'shed', invocation: 1, predictedEndMs: 1500, trialMs }]);
  expect(arrive(1, trialMs - 1)).toMatchObject([{ kind: 'shed' }]);
  expect(arrive(1, trialMs)).toMatchObject([run]);
  scheduler.handle({ kind: 'finished', invocation: 1, observed: { runMs: 5 } }, trialMs + 5);
  expect(arrive(1, trialMs + 6)).toMatchObject([{ ...run, predictedEndMs: trialMs + 11 }]);
});

test('a trial that fails at once does not show that a function has become faster', () => {
  const scheduler = new Scheduler({
    gpus: [],
    policy: { ...policies.best, admission: 'shed' },
    cpu: { cores: 1, memoryBytes: 1e9 },
  });
  const sheet = { ...offerSheet(0, { layers: [] }, { cpu: { latencyMs: undefined, cores: 1 } }), sloMs: 100 };
  const run = (functionIndex: number, startMs: number, runMs: number): void => {
    scheduler.handle({ kind: 'arrival', invocation: 0, functionIndex }, startMs);
    scheduler.handle({ kind: 'finished', invocation: 0, observed: { runMs } }, startMs + runMs);
  };
  for (const functionIndex of [0, 1]) scheduler.handle({ kind: 'function-added', functionIndex, sheet }, 0);
  run(0, 0, 700);
  // By now others are fast: a function whose time was forgotten would be expected to be so too.
  for (let call = 0; call < 40; call++) run(1, 1000 + 100 * call, 1);
  scheduler.handle({ kind: 'arrival', invocation: 1, functionIndex: 0 }, 20_000);
  scheduler.handle({ kind: 'finished', invocation: 1 }, 20_001);
  const next = scheduler.handle({ kind: 'arrival', invocation: 1, functionIndex: 0 }, 20_002);
  expect(next).toMatchObject([{ kind: 'shed', predictedEndMs: 20_702 }]);
});

const ended = (invocation: number): SchedulerEvent => ({
  kind: 'finished',
  invocation,
  observed: { runMs: 20, loadMs: 200, bytes: 10 },
});

describe('a call that is late on GPUs and has no session on the CPU', () => {
  const cpu = { latencyMs: 20, cores: 1, loadMs: 200, bytes: 10 };
  /** The only GPU is busy for as long as the test takes. */
  function busy(cpuMemoryBytes: number): { readonly bench: Bench; readonly late: readonly number[] } {
    const bench = new Bench(best, { cpuMemoryBytes });
    const blocking = bench.add({ layers: [1], warmMs: 1e5 }, { sloMs: 1e6 });
    const late = [0, 1].map(() => bench.add({ layers: [1], warmMs: 10 }, { sloMs: 100, cpu }));
    bench.visit(0, 0, blocking);
    bench.at(10, arrival(0, blocking));
    return { bench, late };
  }

  test('has it made on an idle core, and the next call is in time there', () => {
    const { bench, late } = busy(20);
    expect(bench.at(20, arrival(1, late[0]!))).toMatchObject([
      { kind: 'run-beside', loads: true, decision: { reason: 'bringing' } },
    ]);
    // No core is idle, so it waits for the GPU.
    expect(kinds(bench.at(30, arrival(2, late[1]!)))).not.toContain('run-beside');
    bench.at(240, ended(1));
    expect(bench.at(250, arrival(1, late[0]!))).toMatchObject([
      { kind: 'run-beside', loads: false, decision: { reason: 'slo' } },
    ]);
  });

  test('closes another one only for a function that is called more often', () => {
    const { bench, late } = busy(10);
    const [often, seldom] = late;
    for (let call = 0; call < 3; call++) {
      bench.at(20 + 300 * call, arrival(1, often!));
      bench.at(240 + 300 * call, ended(1));
    }
    expect(kinds(bench.at(1000, arrival(1, seldom!)))).not.toContain('evict-cpu');
    const later = [2, 3, 4, 5].flatMap((invocation) => bench.at(1000 + invocation, arrival(invocation, seldom!)));
    expect(kinds(later)).toContain('evict-cpu');
  });

  /** GPU 0 is busy, and has a call late; GPU 1 has room for functions that are called in time. */
  function beside(cpuCores: number): {
    readonly bench: Bench;
    readonly inTime: readonly number[];
    readonly late: () => void;
  } {
    const bench = new Bench(best, { gpus: 2, cpuCores, cpuMemoryBytes: 20, capacityBytes: 10 });
    const blocking = bench.add({ layers: [1], warmMs: 1e5 }, { sloMs: 1e6 }, 0);
    const late = bench.add({ layers: [1], warmMs: 10 }, { sloMs: 100, cpu }, 0);
    const inTime = [0, 1].map(() => bench.add({ layers: [1], warmMs: 10 }, { sloMs: 100, cpu }, 1));
    bench.visit(0, 0, blocking);
    bench.at(10, arrival(0, blocking));
    return { bench, inTime, late: () => void bench.at(20, arrival(1, late)) };
  }

  test('has those of others made ahead on idle cores, while there is room, and nothing of a GPU waits for them', () => {
    const { bench, inTime, late } = beside(4);
    expect(kinds(bench.visit(15, 2, inTime[0]!))).not.toContain('make-session');
    late();
    const ahead = bench.visit(30, 2, inTime[1]!);
    expect(ahead).toContainEqual({ kind: 'make-session', functionIndex: inTime[1] });
    expect(kinds(ahead)).toContain('run');
    bench.at(235, ended(1));
    bench.at(240, { kind: 'session', functionIndex: inTime[1]!, bytes: 10 });
    bench.at(250, { kind: 'gpu-lost', gpu: 1 });
    expect(bench.at(260, arrival(3, inTime[1]!))).toMatchObject([{ kind: 'run-beside', loads: false }]);
  });

  test('takes no core for them that calls may need soon, and gives it back where one could not be made', () => {
    const { bench, inTime, late } = beside(2);
    late();
    expect(kinds(bench.visit(30, 2, inTime[0]!))).not.toContain('make-session');
    bench.at(240, ended(1));
    expect(kinds(bench.visit(300, 3, inTime[1]!))).toContain('make-session');
    const wanted = { kind: 'run-beside', loads: true };
    bench.at(310, { kind: 'session', functionIndex: inTime[1]!, bytes: 0 });
    bench.at(320, { kind: 'gpu-lost', gpu: 1 });
    expect(bench.at(330, arrival(4, inTime[1]!))).toMatchObject([wanted]);
    expect(kinds(bench.at(340, arrival(5, inTime[0]!)))).toContain('run-beside');
  });
});
