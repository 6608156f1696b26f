/** The live shell with a fake GPU process and a clock moved by hand. */
import { getEventListeners } from 'node:events';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Bench, gpuOnly, layerCount, layerMs, NoMemory, warmMs, wholeBytes } from '../../test/support/gpu-shell.ts';
import { policies } from '../schedule/index.ts';
import { toSchedulerPriority } from './types.ts';

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

test('priorities keep their order in the scheduler, those below 10,000 are one, and what no client waits for is last', () => {
  const some = fc.oneof(fc.integer({ min: 1, max: 10_000 }), fc.integer({ min: 1, max: 2 ** 31 - 1 }));
  fc.assert(
    fc.property(some, some, (one, other) => {
      const [first, second] = [one, other].map((each) => Math.min(each, 10_000)) as [number, number];
      expect(Math.sign(toSchedulerPriority(one) - toSchedulerPriority(other))).toBe(Math.sign(second - first));
      expect(toSchedulerPriority(2 ** 31)).toBeLessThan(toSchedulerPriority(one));
    }),
  );
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
    bench.offer(0, { sloMs: 1 });
    bench.arrive(0);
    await pass(50);
    expect(bench.kinds()).toEqual(['shed']);
  });

  test('counts from its arrival at the host: time that has passed before is missing', async () => {
    const bench = new Bench({ policy: { ...gpuOnly, admission: 'shed' } });
    bench.arrive(0, undefined, { sinceMs: performance.now() - 99 });
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
    for (const eviction of bench.evictions)
      expect(eviction).toMatchObject({ key: 'f0@1', gpu: 0, cause: 'out-of-memory' });
    expect(bench.evictions.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(wholeBytes);
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

test('an answer that the host has no memory for fails its call alone, and no other place runs it', async () => {
  const bench = new Bench();
  for (const failure of [undefined, new NoMemory('no memory'), undefined]) {
    if (failure !== undefined) bench.process.failures.push(failure);
    bench.arrive(0);
    await pass(60);
  }
  expect(bench.kinds()).toEqual(['gpu', 'no memory', 'gpu']);
  expect(bench.news.filter((news) => news.startsWith('run'))).toEqual(Array(3).fill('run succeeded'));
  expect(bench.process.orders.filter((order) => !order.startsWith('run'))).toEqual(['load f0@1 to 0']);
  expect(bench.disagreements()).toEqual([]);
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

/** It has warm weights, and ends its execution after `warmMs`. */
async function running(): Promise<Bench> {
  const bench = new Bench({ functions: 2 });
  bench.process.outputMs = 10;
  for (const index of [0, 1]) {
    bench.arrive(index);
    await pass(60);
  }
  bench.process.orders.length = 0;
  bench.outcomes.length = 0;
  bench.arrive(0);
  return bench;
}

describe('a run whose GPU is free while its outputs are on their way', () => {
  test('lets the next one begin', async () => {
    const bench = await running();
    bench.arrive(1);
    await pass(warmMs);
    expect(bench.process.orders).toEqual(['run f0@1 on 0', 'run f1@1 on 0']);
    expect(bench.outcomes).toEqual([]);
    await pass(bench.process.outputMs);
    expect(bench.outcomes).toMatchObject([{ kind: 'gpu', start: 'warm', queueMs: 0, inferMs: warmMs }]);
    await pass(bench.process.outputMs);
    expect(bench.outcomes[1]).toMatchObject({ kind: 'gpu', start: 'warm', queueMs: warmMs });
    expect(bench.disagreements()).toEqual([]);
  });

  test('is placed elsewhere when the process ends before they have come', async () => {
    const bench = await running();
    await pass(warmMs + 1);
    bench.process.die();
    bench.shell.lost();
    await pass(60);
    expect(bench.outcomes).toMatchObject([{ kind: 'cpu', why: { refusals: ['gpu0 failed: the GPU process died'] } }]);
    expect(bench.defects).toEqual([]);
  });

  test('does not let its layers go before they have come', async () => {
    const bench = await running();
    const unloading = bench.shell.functions.unload('f0@1');
    let isOver = false;
    void unloading.then(() => (isOver = true));
    await pass(warmMs + 1);
    expect(isOver).toBe(false);
    await pass(60);
    expect(isOver).toBe(true);
    expect(bench.kinds()).toEqual(['gpu']);
    expect(bench.disagreements()).toEqual([]);
  });
});

describe('unload', () => {
  test('returns the bytes', async () => {
    const bench = new Bench();
    bench.arrive(0);
    await pass(60);
    const unloading = bench.shell.functions.unload('f0@1');
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
    void bench.shell.functions.unload('f0@1').then(() => (isUnloaded = true));
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

test('short runs are ordered together, and what is evicted meanwhile is freed behind them', async () => {
  const bench = new Bench();
  bench.process.stretch = 0.05;
  for (const index of [0, 0, 1, 1]) {
    bench.arrive(index);
    await pass(100);
  }
  bench.process.orders.length = 0;
  for (let call = 0; call < 12; call++) bench.arrive(0);
  expect(bench.process.orders).toEqual(Array.from({ length: 8 }, () => 'run f0@1 on 0'));
  // There is no room for it beside the two.
  bench.arrive(2);
  await pass(100);
  expect(bench.kinds().slice(4)).toEqual(Array.from({ length: 13 }, () => 'gpu'));
  expect(bench.process.orders.filter((order) => order.startsWith('trim'))).not.toEqual([]);
  expect(bench.process.overfull).toBeUndefined();
  expect(bench.disagreements()).toEqual([]);
});

describe('with a disk behind host memory', () => {
  test('a first call starts from disk, as do calls behind its read; later ones are warm', async () => {
    const bench = new Bench({ hostBytes: 80 });
    bench.process.diskMs = 40;
    const expected = bench.shell.sheetOf('f0@1')!.gpus[0]!;
    bench.arrive(0);
    bench.arrive(0);
    await pass(200);
    bench.arrive(0);
    await pass(100);
    expect(bench.outcomes).toMatchObject([{ start: 'disk' }, { start: 'disk' }, { start: 'warm' }]);
    expect(bench.shell.counts.starts).toMatchObject({ disk: 2, warm: 1 });
    expect(bench.shell.sheetOf('f0@1')!.gpus[0]).toEqual(expected);
    expect(bench.disagreements()).toEqual([]);
  });

  test('the copy of one that is whole on its GPU goes for another, and comes back by a read', async () => {
    const bench = new Bench({ hostBytes: 40, bytes: 40, functions: 2 });
    bench.process.diskMs = 40;
    for (const index of [0, 1, 0]) {
      bench.arrive(index);
      await pass(2000);
    }
    expect(bench.outcomes).toMatchObject([{ start: 'disk' }, { start: 'disk' }, { start: 'disk' }]);
    const host = bench.process.orders.filter((order) => /^(stage|drop)/.test(order));
    expect(host).toEqual(['stage f0@1', 'drop f0@1', 'stage f1@1', 'drop f1@1', 'stage f0@1']);
    expect(bench.disagreements()).toEqual([]);
  });

  test('what a check holds stays, and a function that can never have room is told so', async () => {
    const bench = new Bench({ hostBytes: 40, functions: 2 });
    bench.process.diskMs = 40;
    const holding = bench.shell.holdInHost('f0@1');
    await pass(50);
    const held = (await holding) as Disposable;
    bench.arrive(1);
    await pass(5000);
    expect(bench.outcomes).toEqual([]);
    held[Symbol.dispose]();
    await pass(200);
    expect(bench.outcomes).toMatchObject([{ start: 'disk' }]);
    expect(bench.disagreements()).toEqual([]);
    bench.shell.resizeHost(30);
    expect(await bench.shell.holdInHost('f0@1')).toBe('too large');
    expect(await bench.shell.holdInHost('f7@1')).toBe('gone');
  });

  test('a function that executes all of its weights from host memory is read before it runs', async () => {
    const bench = new Bench({ hostBytes: 80, functions: 2 });
    bench.process.diskMs = 40;
    bench.offer(0, {}, layerCount);
    bench.arrive(0);
    await pass(20);
    expect(bench.shell.hostWait('f0@1')).toBe('its read');
    expect(bench.process.orders).toEqual(['stage f0@1']);
    await pass(50);
    expect(bench.outcomes).toMatchObject([{ kind: 'gpu', start: 'disk' }]);
    expect(bench.disagreements()).toEqual([]);
  });

  test('after the process has died, what was called is read again once the next one knows it', async () => {
    const bench = new Bench({ hostBytes: 80, functions: 2 });
    bench.process.diskMs = 40;
    bench.arrive(0);
    await pass(200);
    const holding = bench.shell.holdInHost('f1@1');
    bench.process.die();
    bench.shell.lost();
    expect(await holding).toBe('gone');
    await pass(100);
    expect([bench.shell.hostBytes, bench.process.hostBytes()]).toEqual([0, 0]);
    bench.back();
    await pass(100);
    expect(bench.process.hostBytes()).toBe(wholeBytes);
    bench.arrive(0);
    await pass(100);
    expect(bench.outcomes.at(-1)).toMatchObject({ start: 'cold' });
    expect(bench.disagreements()).toEqual([]);
  });

  test('calls of a function that cannot be read run elsewhere, and a later one has it read', async () => {
    const bench = new Bench({ hostBytes: 80, policy: policies.best });
    bench.offer(0, { sloMs: 60_000 });
    bench.process.unread.push('weights-unreadable');
    bench.preload(0);
    await pass(200);
    expect(bench.preloads).toEqual([false]);
    expect(bench.news).toContain('run failed');
    expect(bench.disagreements()).toEqual([]);
    bench.preload(0);
    await pass(200);
    expect(bench.preloads).toEqual([false, true]);
    expect(bench.disagreements()).toEqual([]);
  });
});

test('a removed function leaves nothing behind, and its name can be used again at once', async () => {
  const bench = new Bench();
  bench.arrive(0);
  await pass(60);
  const removed = bench.shell.functions.remove('f0@1');
  await pass(10);
  await removed;
  expect(bench.process.bytes(0)).toBe(0);
  bench.offer(0);
  bench.arrive(0);
  await pass(60);
  expect(bench.outcomes.at(-1)).toMatchObject({ kind: 'gpu', start: 'cold' });
  expect(bench.disagreements()).toEqual([]);
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
    expect(bench.shell.counts.starts).toEqual({ cold: 1, partial: 0, warm: 1, disk: 0 });
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
