/** The live shell with a fake GPU process and a clock moved by hand. */
import { getEventListeners } from 'node:events';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Bench, gpuOnly, layerCount, layerMs, warmMs, wholeBytes } from '../../../test/support/gpu-shell.ts';
import type { GpuErrorCode } from '../../gpu/index.ts';
import { policies, type Policy } from '../../schedule/index.ts';

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('an invocation', () => {
  test('that comes first starts cold, the next one warm', async () => {
    const bench = new Bench();
    bench.arrive(0);
    await pass(50);
    bench.arrive(0);
    await pass(50);
    expect(bench.outcomes).toMatchObject([
      // A real execution begins when the rest of the load can be hidden behind it; this process does not overlap the
      // two.
      { kind: 'gpu', start: 'cold', queueMs: 0, loadMs: layerCount * layerMs, inferMs: warmMs },
      { kind: 'gpu', start: 'warm', loadMs: 0, inferMs: warmMs },
    ]);
    expect(bench.shell.counts).toMatchObject({ starts: { cold: 1, partial: 0, warm: 1 } });
    expect(bench.disagreements()).toEqual([]);
  });

  test('starts warm behind one that ended before its load was confirmed', async () => {
    const bench = new Bench();
    bench.process.loadAnswerMs = 100;
    for (let call = 0; call < 2; call++) {
      bench.arrive(0);
      await pass(50);
    }
    expect(bench.outcomes).toMatchObject([
      { kind: 'gpu', start: 'cold' },
      { kind: 'gpu', start: 'warm', loadMs: 0 },
    ]);
    expect(bench.process.orders).toEqual(['load f0@1 to 0', 'run f0@1 on 0', 'run f0@1 on 0']);
    await pass(100);
    bench.arrive(0);
    await pass(50);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'warm', ahead: undefined });
    expect(bench.disagreements()).toEqual([]);
  });

  test('joins the cold start of another one', async () => {
    const bench = new Bench();
    for (let caller = 0; caller < 3; caller++) bench.arrive(0);
    await pass(100);
    expect(bench.kinds()).toEqual(['gpu', 'gpu', 'gpu']);
    expect(bench.process.orders.filter((order) => order.startsWith('load'))).toHaveLength(1);
    expect(bench.shell.counts.starts.cold).toBeGreaterThan(0);
  });

  test('of a function that has no room evicts before it loads', async () => {
    const bench = new Bench();
    for (const index of [0, 1, 2]) {
      bench.arrive(index);
      await pass(60);
    }
    expect(bench.kinds()).toEqual(['gpu', 'gpu', 'gpu']);
    expect(bench.evictions.length).toBeGreaterThan(0);
    expect(bench.process.overfull).toBeUndefined();
    const firstTrim = bench.process.orders.findIndex((order) => order.startsWith('trim'));
    const lastRun = bench.process.orders.findIndex((order) => order === 'run f2@1 on 0');
    expect(firstTrim).toBeGreaterThan(-1);
    expect(firstTrim).toBeLessThan(lastRun);
    expect(bench.disagreements()).toEqual([]);
  });

  test('whose caller leaves while it waits is not run', async () => {
    const bench = new Bench();
    const caller = new AbortController();
    bench.arrive(0);
    bench.arrive(1, caller.signal);
    await pass(1);
    caller.abort();
    await pass(100);
    expect(bench.kinds()).toEqual(['the client is gone', 'gpu']);
    expect(bench.process.orders).not.toContain('run f1@1 on 0');
  });

  test('shares one listener with the other waiting invocations of its connection', async () => {
    const bench = new Bench();
    const caller = new AbortController();
    for (let call = 0; call < 20; call++) bench.arrive(call % 2, caller.signal);
    expect(getEventListeners(caller.signal, 'abort')).toHaveLength(1);
    caller.abort();
    await pass(100);
    expect(bench.kinds().filter((kind) => kind === 'the client is gone')).toHaveLength(20);
  });

  test('whose caller leaves while it runs is finished, and its weights stay', async () => {
    const bench = new Bench();
    const caller = new AbortController();
    bench.arrive(0, caller.signal);
    await pass(layerCount * layerMs);
    expect(bench.process.orders).toContain('run f0@1 on 0');
    caller.abort();
    await pass(100);
    expect(bench.kinds()).toEqual(['gpu']);
    expect(bench.disagreements()).toEqual([]);
    expect(bench.process.bytes(0)).toBe(wholeBytes);
  });

  test('goes to the CPU pool when the GPU would be late and the pool would not', async () => {
    const bench = new Bench({ policy: policies.best, cpuMs: 5 });
    bench.offer(0, { sloMs: 10 });
    bench.arrive(0);
    await pass(50);
    expect(bench.outcomes).toMatchObject([{ kind: 'cpu', why: { reason: 'slo', otherPlace: 0, sloMs: 10 } }]);
  });

  test('has its own SLO and priority, of which 1 is the highest', async () => {
    const hurried = new Bench({ policy: policies.best, cpuMs: 5 });
    hurried.offer(0, { sloMs: 60_000 });
    hurried.arrive(0, undefined, { sloMs: 10 });
    hurried.arrive(0);
    await pass(100);
    expect(hurried.outcomes).toMatchObject([
      { kind: 'cpu', why: { reason: 'slo', otherPlace: 0, sloMs: 10 } },
      { kind: 'gpu' },
    ]);
    const bench = new Bench({ policy: policies.artifact });
    for (const priority of [100, 100, 1, 2]) bench.arrive(priority === 100 ? 0 : priority, undefined, { priority });
    await pass(500);
    const runs = bench.process.orders.filter((order) => order.startsWith('run'));
    expect(runs.slice(0, 3)).toEqual(['run f0@1 on 0', 'run f1@1 on 0', 'run f2@1 on 0']);
  });

  test('that would be late is shed where the policy says so', async () => {
    const bench = new Bench({ policy: { ...gpuOnly, admission: 'shed' } });
    bench.offer(0, { sloMs: 10 });
    bench.arrive(0);
    await pass(50);
    expect(bench.kinds()).toEqual(['shed']);
  });

  test('counts from its arrival at the host: time that has passed before is missing', async () => {
    const bench = new Bench({ policy: { ...gpuOnly, admission: 'shed' } });
    bench.arrive(0, undefined, { sinceMs: performance.now() - 95 });
    await pass(50);
    bench.arrive(0);
    await pass(50);
    expect(bench.outcomes).toMatchObject([{ kind: 'shed', sloMs: 100 }, { kind: 'gpu' }]);
    const predictedMs = bench.outcomes.map((outcome) => ('predictedMs' in outcome ? outcome.predictedMs : 0));
    expect(predictedMs[0]).toBeGreaterThan(100);
  });

  test('before any run on the CPU has no predicted time, the one behind it has', async () => {
    const bench = new Bench({ gpuCount: 0, cpuMs: 'unknown' });
    for (let call = 0; call < 2; call++) {
      bench.arrive(0);
      await pass(50);
    }
    const predicted = bench.outcomes.map((outcome) => ('why' in outcome ? outcome.why.predictedMs : NaN));
    expect(predicted).toEqual([undefined, 20]);
  });

  test('of a function that is not known goes to the CPU pool', async () => {
    const bench = new Bench();
    bench.arrive(7);
    await pass(1);
    expect(bench.kinds()).toEqual(['cpu']);
  });
});

describe('out of memory', () => {
  test('evicts more and retries once', async () => {
    const bench = new Bench();
    bench.arrive(0);
    await pass(60);
    bench.process.failures.push('out-of-memory');
    bench.arrive(1);
    await pass(60);
    expect(bench.kinds()).toEqual(['gpu', 'gpu']);
    expect(bench.evictions).toMatchObject([{ key: 'f0@1', gpu: 0, cause: 'out-of-memory', bytes: wholeBytes }]);
    expect(bench.disagreements()).toEqual([]);
  });

  test('twice goes to the CPU pool, and its layers count as lost', async () => {
    const bench = new Bench();
    bench.process.failures.push('out-of-memory', 'out-of-memory');
    bench.arrive(0);
    await pass(60);
    expect(bench.outcomes).toMatchObject([{ kind: 'cpu', why: { refusals: ['gpu0 failed: out-of-memory'] } }]);
    await pass(60);
    expect(bench.disagreements()).toEqual([]);
    expect(bench.process.bytes(0)).toBe(0);
    bench.arrive(0);
    await pass(60);
    expect(bench.kinds()).toEqual(['cpu', 'gpu']);
  });

  test('spares functions that are pinned', async () => {
    const bench = new Bench();
    bench.offer(0, { pinned: true });
    bench.arrive(0);
    await pass(60);
    bench.process.failures.push('out-of-memory');
    bench.arrive(1);
    await pass(60);
    expect(bench.evictions).toEqual([]);
    expect(bench.kinds()).toEqual(['gpu', 'gpu']);
  });
});

test('an input that the GPU finds invalid is tried on the CPU pool; if that answers, the function counts as failed', async () => {
  const bench = new Bench();
  bench.arrive(0);
  await pass(60);
  bench.process.failures.push('invalid');
  bench.arrive(0);
  await pass(60);
  expect(bench.kinds()).toEqual(['gpu', 'cpu']);
  expect(bench.news.filter((news) => news.startsWith('run'))).toEqual(['run succeeded', 'run failed']);
  expect(bench.disagreements()).toEqual([]);
});

test('invocations that wait or run when the GPUs become known end once, and later calls go there', async () => {
  const bench = new Bench({ gpuCount: 0, cpuCores: 1 });
  bench.arrive(0);
  bench.arrive(0);
  bench.bringGpus(1);
  bench.offer(0);
  await pass(100);
  expect(bench.kinds()).toEqual(['cpu', 'cpu']);
  bench.arrive(0);
  await pass(60);
  expect(bench.kinds()).toEqual(['cpu', 'cpu', 'gpu']);
});

test('an eviction names the function that needed the room', async () => {
  const bench = new Bench();
  for (const index of [0, 1, 2]) {
    bench.arrive(index);
    await pass(60);
  }
  expect(bench.evictions[0]).toMatchObject({ key: 'f0@1', by: 'f2@1' });
});

test('more invocations than may wait for a function are refused at once', async () => {
  const bench = new Bench({ waitingMax: 2 });
  for (let caller = 0; caller < 4; caller++) bench.arrive(0);
  await pass(200);
  expect(bench.kinds()).toEqual([
    ...Array.from({ length: 2 }, () => '2 invocations of f0@1 wait already'),
    'gpu',
    'gpu',
  ]);
});

describe('a lost process', () => {
  test('has its invocations run once by the CPU pool, and everything is cold afterwards', async () => {
    const bench = new Bench({ gpuCount: 2, functions: 4 });
    for (const index of [0, 1, 2, 3, 0]) bench.arrive(index);
    await pass(10);
    bench.process.die();
    bench.shell.lost();
    await pass(50);
    expect(bench.kinds()).toEqual(Array.from({ length: 5 }, () => 'cpu'));
    expect(bench.disagreements()).toEqual([]);
    bench.arrive(0);
    await pass(1);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'cpu', why: { reason: 'only' } });
    bench.shell.back();
    bench.arrive(0);
    await pass(60);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'cold' });
    expect(bench.evictions.every(({ cause }) => cause === 'gpu-lost')).toBe(true);
  });

  test('gets no more requests', async () => {
    const bench = new Bench({ gpuCount: 2 });
    bench.arrive(0);
    await pass(1);
    bench.process.die();
    const before = bench.process.orders.length;
    bench.shell.lost();
    await pass(60);
    expect(bench.process.orders.slice(before)).toEqual([]);
  });
});

describe('unload', () => {
  test('returns the bytes', async () => {
    const bench = new Bench();
    bench.arrive(0);
    await pass(60);
    const unloading = bench.shell.unload('f0@1');
    await pass(10);
    await unloading;
    expect(bench.process.bytes(0)).toBe(0);
    expect(bench.evictions).toMatchObject([{ cause: 'unload', bytes: wholeBytes, ageMs: 60 }]);
    expect(bench.disagreements()).toEqual([]);
  });

  test('of a running function lets it finish, sends waiting calls to the CPU pool, and returns the bytes', async () => {
    const bench = new Bench();
    bench.arrive(0);
    bench.arrive(0);
    await pass(layerCount * layerMs);
    expect(bench.process.orders).toContain('run f0@1 on 0');
    let isUnloaded = false;
    void bench.shell.unload('f0@1').then(() => (isUnloaded = true));
    bench.arrive(0);
    expect(isUnloaded).toBe(false);
    await pass(60);
    expect(isUnloaded).toBe(true);
    expect(bench.kinds().toSorted()).toEqual(['cpu', 'cpu', 'gpu']);
    expect(bench.process.bytes(0)).toBe(0);
    bench.arrive(0);
    await pass(60);
    expect(bench.kinds().at(-1)).toBe('gpu');
    expect(bench.disagreements()).toEqual([]);
  });
});

test('a preload has the weights on a GPU although the CPU pool would be faster', async () => {
  const bench = new Bench({ policy: policies.best, cpuMs: 1 });
  bench.offer(0, { sloMs: 5 });
  bench.preload(0);
  await pass(60);
  expect(bench.preloads).toEqual([true]);
  expect(bench.process.bytes(0)).toBe(wholeBytes);
  bench.arrive(0);
  await pass(10);
  expect(bench.outcomes).toMatchObject([{ kind: 'gpu', start: 'warm' }]);
});

test('calls that wait for a core keep their places while another call of their function is brought to a GPU', async () => {
  const bench = new Bench({ policy: policies.best, cpuCores: 1 });
  const keptOff = { reason: 'shapes', words: 'no program for these shapes' };
  for (let call = 0; call < 3; call++) bench.arrive(0, undefined, { keptOff });
  bench.preload(0);
  await pass(200);
  expect(bench.preloads).toEqual([true]);
  expect(bench.kinds()).toEqual(['cpu', 'cpu', 'cpu']);
});

test('after runs three times as long as profiled, predictions triple', async () => {
  const bench = new Bench();
  bench.process.stretch = 3;
  for (let run = 0; run < 30; run++) {
    bench.arrive(0);
    await pass(100);
  }
  const predictedMs = bench.shell.sheetOf('f0@1')!.gpus[0]!.warmMs;
  expect(predictedMs).toBeGreaterThan(2.4 * warmMs);
  expect(predictedMs).toBeLessThanOrEqual(3 * warmMs);
  expect(bench.disagreements()).toEqual([]);
});

test('a removed function leaves nothing behind, and its name can be used again at once', async () => {
  const bench = new Bench();
  bench.arrive(0);
  await pass(60);
  const removed = bench.shell.remove('f0@1');
  await pass(10);
  await removed;
  expect(bench.process.bytes(0)).toBe(0);
  bench.offer(0);
  bench.arrive(0);
  await pass(60);
  expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'cold' });
  expect(bench.disagreements()).toEqual([]);
});

describe('plan variants', () => {
  test('makes a function shrink for another load instead of being evicted', async () => {
    const bench = new Bench({ hasVariants: true });
    for (const index of [0, 1, 2]) {
      bench.arrive(index);
      await pass(60);
    }
    // Two whole functions leave 20 of 100 bytes: the third is loaded under its smaller plan. The fourth needs
    // evictions.
    expect(bench.outcomes).toMatchObject([
      { variant: 'gpu' },
      { variant: 'gpu' },
      { variant: 'memory', start: 'cold' },
    ]);
    bench.offer(3);
    bench.arrive(3);
    await pass(60);
    const { orders } = bench.process;
    expect(orders.indexOf('keep memory of f0@1 on 0')).toBeLessThan(orders.indexOf('load f3@1 to 0 under memory'));
    expect(orders).toContain('keep memory of f0@1 on 0');
    expect(bench.evictions).toEqual([]);
    expect(bench.process.overfull).toBeUndefined();
    expect(bench.shell.counts).toMatchObject({ shrinks: 1, growths: 0 });
    expect(bench.shell.planChanges('f0@1')).toMatchObject({ shrinks: 1, growths: 0 });
    expect(bench.shell.resident('f0@1', 0)).toEqual({ prefix: 2, whole: 2, bytes: 20, variant: 'memory' });
    bench.arrive(0);
    await pass(10);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'warm', variant: 'memory', inferMs: 2 * warmMs });
    expect(bench.disagreements()).toEqual([]);
  });

  test('makes a function grow beside its runs when there is room', async () => {
    const bench = new Bench({ hasVariants: true, bytes: 60, functions: 2 });
    for (const index of [0, 1]) {
      bench.arrive(index);
      await pass(60);
    }
    expect(bench.shell.resident('f1@1', 0)).toMatchObject({ variant: 'memory' });
    const removed = bench.shell.remove('f0@1');
    await pass(5);
    await removed;
    bench.arrive(1);
    await pass(5);
    // Two layers take 10 ms, and a run under the smaller plan 4.
    expect(bench.process.orders).toContain('load f1@1 to 0 under gpu');
    expect(bench.shell.isLoading('f1@1', 0)).toBe(true);
    bench.arrive(1);
    await pass(4);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'warm', variant: 'memory', loadMs: 0 });
    await pass(20);
    bench.arrive(1);
    await pass(10);
    expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'warm', variant: 'gpu', inferMs: warmMs });
    expect(bench.shell.counts).toMatchObject({ shrinks: 0, growths: 1 });
    expect(bench.disagreements()).toEqual([]);
  });

  test('gives a preload the variant that meets the SLO', async () => {
    const bench = new Bench({ hasVariants: true, bytes: 50, functions: 2 });
    bench.offer(0, { sloMs: warmMs });
    bench.arrive(1);
    await pass(60);
    bench.preload(0);
    await pass(60);
    // There would be room for the smaller plan, beside the other function.
    expect(bench.shell.resident('f0@1', 0)).toMatchObject({ variant: 'gpu', bytes: wholeBytes });
    expect(bench.preloads).toEqual([true]);
    expect(bench.disagreements()).toEqual([]);
  });

  test('that is invalid is refused by name, and changes nothing', async () => {
    const bench = new Bench({ hasVariants: true, functions: 1 });
    const [offer] = bench.plans.offers;
    const offers = [{ ...offer!, plan: 'memory' }];
    expect(() =>
      bench.shell.offer({ key: 'f1@1', settings: { sloMs: 100, priority: 1 } }, { ...bench.plans, offers }, false),
    ).toThrow("f1@1 has two plans named 'memory'");
    expect(bench.shell.has('f1@1')).toBe(false);
    bench.offer(1);
    bench.arrive(1);
    await pass(60);
    expect(bench.kinds()).toEqual(['gpu']);
  });

  test('is predicted as slow as it runs, under each of its plans', async () => {
    const bench = new Bench({ hasVariants: true, bytes: 20, functions: 1 });
    bench.process.stretch = 3;
    for (let run = 0; run < 30; run++) {
      bench.arrive(0);
      await pass(100);
    }
    const { warmMs: top, smaller } = bench.shell.sheetOf('f0@1')!.gpus[0]!;
    expect(top / warmMs).toBeGreaterThan(2.4);
    expect(smaller!.warmMs / (2 * warmMs)).toBeCloseTo(top / warmMs);
    expect(bench.outcomes.at(-1)).toMatchObject({ start: 'warm', variant: 'memory' });
    expect(bench.disagreements()).toEqual([]);
  });
});

function joinedCalls(calls: number): Bench {
  const bench = new Bench({ functions: 1 });
  bench.offer(0, { sloMs: 60_000 });
  bench.join(0);
  for (let call = 0; call < calls; call++) bench.arriveJoined(0);
  return bench;
}

describe('calls that share a run', () => {
  test('get their own answers and the number of calls in the run', async () => {
    const bench = joinedCalls(6);
    await pass(200);
    expect(bench.outcomes.map((ended) => 'batchSize' in ended && ended.batchSize)).toEqual([4, 4, 4, 4, 2, 2]);
    expect(bench.process.rows).toEqual([4, 2]);
    expect(bench.defects).toEqual([]);
    expect(bench.shell.counts.starts).toEqual({ cold: 1, partial: 0, warm: 1 });
  });

  test('run as four when they are three, with the last one twice', async () => {
    const bench = joinedCalls(3);
    await pass(200);
    expect(bench.process.rows).toEqual([4]);
    expect(bench.kinds()).toEqual(['gpu', 'gpu', 'gpu']);
    expect(bench.defects).toEqual([]);
  });

  test('are each placed elsewhere when the run fails, which counts as one failure', async () => {
    const bench = joinedCalls(0);
    bench.process.failures.push('weights-unreadable');
    for (let call = 0; call < 4; call++) bench.arriveJoined(0);
    await pass(200);
    expect(bench.kinds()).toEqual(['cpu', 'cpu', 'cpu', 'cpu']);
    expect(bench.news.filter((kind) => kind === 'run failed')).toHaveLength(1);
    for (const ended of bench.outcomes)
      expect(ended).toMatchObject({ why: { refusals: ['gpu0 failed: weights-unreadable'] } });
  });
});

type Step =
  | { readonly kind: 'arrive'; readonly index: number; readonly leavesAfterMs: number | undefined }
  | { readonly kind: 'pass'; readonly ms: number }
  | { readonly kind: 'fail'; readonly code: GpuErrorCode }
  | { readonly kind: 'die' | 'back' }
  | { readonly kind: 'remove' | 'offer' | 'unload' | 'pin' | 'preload'; readonly index: number };

const functionCount = 6;
const index = fc.nat({ max: functionCount - 1 });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('arrive' as const),
      index,
      leavesAfterMs: fc.option(fc.nat({ max: 40 }), { nil: undefined, freq: 4 }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat({ max: 30 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('fail' as const),
      code: fc.constantFrom<GpuErrorCode>('out-of-memory', 'invalid', 'weights-unreadable', 'host-memory'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('die' as const, 'back' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('remove' as const, 'offer' as const, 'unload' as const, 'pin' as const, 'preload' as const),
      index,
    }),
  },
);

async function take(bench: Bench, removing: Map<number, Promise<void>>, step: Step): Promise<void> {
  switch (step.kind) {
    case 'arrive': {
      const caller = new AbortController();
      if (step.leavesAfterMs !== undefined) setTimeout(() => caller.abort(), step.leavesAfterMs);
      if (step.index % 2 === 0) bench.arriveJoined(step.index, caller.signal);
      else bench.arrive(step.index, caller.signal);
      return;
    }
    case 'pass':
      await pass(step.ms);
      return;
    case 'fail':
      bench.process.failures.push(step.code);
      return;
    case 'die':
      if (!bench.shell.isUp) return;
      bench.process.die();
      bench.shell.lost();
      return;
    case 'back':
      bench.shell.back();
      return;
    case 'remove': {
      // As the host does: the next function of that name comes when this one is gone.
      const removed = bench.shell.remove(`f${step.index}@1`);
      removing.set(step.index, removed);
      void removed.then(() => removing.delete(step.index));
      return;
    }
    case 'offer':
    case 'pin':
      if (removing.has(step.index)) return;
      bench.offer(step.index, { pinned: step.kind === 'pin' && step.index === 0 });
      if (step.index % 2 === 0) bench.join(step.index);
      return;
    case 'unload':
      void bench.shell.unload(`f${step.index}@1`);
      return;
    case 'preload':
      bench.preload(step.index);
      return;
  }
}

test('whatever happens, each invocation ends once, no GPU is overfull, and recorded layers are really there', async () => {
  let joinedRuns = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 80 }),
      fc.constantFrom<Policy>(gpuOnly, policies.best, policies.artifact, { ...gpuOnly, admission: 'shed' }),
      fc.boolean(),
      fc.constantFrom(0, 25),
      async (steps, policy, hasVariants, loadAnswerMs) => {
        const bench = new Bench({ gpuCount: 2, functions: functionCount, policy, hasVariants });
        bench.process.loadAnswerMs = loadAnswerMs;
        for (const even of [0, 2, 4]) bench.join(even);
        const removing = new Map<number, Promise<void>>();
        for (const each of steps) await take(bench, removing, each);
        bench.process.failures.length = 0;
        bench.shell.back();
        await pass(5000);
        expect(bench.outcomes).toHaveLength(bench.arrived);
        expect(bench.defects).toEqual([]);
        joinedRuns += bench.process.rows.filter((rows) => rows > 1).length;
        expect(bench.process.overfull).toBeUndefined();
        expect(bench.disagreements()).toEqual([]);
        const ran = bench.outcomes.filter((outcome) => 'kind' in outcome && outcome.kind === 'gpu');
        expect(new Set(ran.map((outcome) => 'result' in outcome && outcome.result)).size).toBe(ran.length);
        bench.shell.close();
      },
    ),
    { numRuns: 300 },
  );
  // Otherwise nothing was joined.
  expect(joinedRuns).toBeGreaterThan(0);
}, 60_000);
