import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { fourCoreProfile as profile } from '../../../test/support/cpu-profile.ts';
import { FakePool, fakeRegistry as registry, fakeVersion as version } from '../../../test/support/fake-pool.ts';
import { createLogger } from '../records/logger.ts';
import { PoolsController, type PoolsControllerOptions } from './pools-controller.ts';
import { Statistics } from '../records/statistics.ts';

let controller: PoolsController | undefined;
// The controller looks by a timer and the real clock as well, once in half a second: here only the test looks.
beforeEach(() => vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
afterEach(() => {
  controller?.close();
  vi.useRealTimers();
});

function start(
  pool: FakePool,
  more: Partial<PoolsControllerOptions> = {},
  cpu: Partial<PoolsControllerOptions['cpu']> = {},
): PoolsController {
  controller = new PoolsController({
    registry,
    pools: pool.pools,
    statistics: new Statistics(),
    profileOf: () => profile,
    cpu: { configure: 'auto', objective: 'latency', cores: 4, reconfigureIntervalMs: 2000, ...cpu },
    batchMaxOf: () => 16,
    logger: createLogger({ level: 'silent', format: 'json' }),
    ...more,
  });
  return controller;
}

/** Looks at a pool that was called. */
function look(one: PoolsController, nowMs: number): void {
  one.called('f@1');
  one.tick(nowMs);
}

/** Looks at the pool every half second for so long, on a clock of its own. */
function run(one: PoolsController, fromMs: number, forMs: number): void {
  for (let nowMs = fromMs; nowMs <= fromMs + forMs; nowMs += 500) look(one, nowMs);
}

/** How often its configuration changed under a steady load. */
function changesAt(arrivalsPerSecond: number, startMs: number, forMs: number): number {
  const pool = new FakePool();
  const one = start(pool);
  pool.set({ arrivalsPerSecond, queueDepth: arrivalsPerSecond / 100, startMs });
  run(one, 0, forMs);
  one.close();
  return pool.configured.length;
}

/** How often it changed under a load that comes and goes every four seconds. */
function changesOver(startMs: number): number {
  const pool = new FakePool();
  const one = start(pool, { batchMaxOf: () => 1 });
  for (let round = 0; round < 60; round++) {
    pool.set({ arrivalsPerSecond: round % 2 === 0 ? 5 : 250, queueDepth: round % 2 === 0 ? 0.05 : 3, startMs });
    run(one, round * 4000, 3500);
  }
  one.close();
  return pool.configured.length;
}

describe('the configuration of a pool', () => {
  test('follows the load: all cores for one request, then one instance a core for many', () => {
    const pool = new FakePool();
    // Of a function that takes no batches.
    const one = start(pool, { batchMaxOf: () => 1 });
    pool.set({ arrivalsPerSecond: 5, queueDepth: 0.05 });
    run(one, 0, 4000);
    pool.set({ arrivalsPerSecond: 250, queueDepth: 3 });
    run(one, 5000, 10_000);
    expect(pool.shapes).toEqual([[[1, 4, 1]], [[4, 1, 1]]]);
    expect(pool.configured[0]?.cause).toBe('5 requests/s');
    // The expected time of a run is passed on to the dispatcher.
    expect(pool.configured[1]?.configuration?.groups[0]?.latencyMs).toBe(10);
  });

  test('of bursts is the one that finishes them first, whatever the rate says', () => {
    const pool = new FakePool();
    const one = start(pool);
    pool.set({ arrivalsPerSecond: 100, queueDepth: 16 });
    run(one, 0, 12_000);
    expect(pool.shapes.at(-1)).toEqual([[4, 1, 4]]);
    expect(pool.configured.at(-1)?.cause).toBe('batches of 16');
    expect(pool.configured.at(-1)?.configuration?.batchTimeoutMs).toBe(5);
  });

  test('under more load than any can answer is the one that answers the most', () => {
    const pool = new FakePool();
    const one = start(pool, { batchMaxOf: () => 1 });
    // The queue has not grown yet.
    pool.set({ arrivalsPerSecond: 5000, queueDepth: 1 });
    run(one, 0, 4000);
    expect(pool.shapes).toEqual([[[4, 1, 1]]]);
  });

  test('changes at most once in an interval, and not for less than a tenth', () => {
    const pool = new FakePool();
    const one = start(pool);
    for (let round = 0; round < 40; round++) {
      pool.set({ arrivalsPerSecond: round % 2 === 0 ? 5 : 250, queueDepth: round % 2 === 0 ? 0.05 : 3 });
      run(one, round * 500, 0);
    }
    expect(pool.configured.length).toBeLessThanOrEqual(10);
    const steady = new FakePool();
    const other = start(steady);
    steady.set({ arrivalsPerSecond: 5, queueDepth: 0.05 });
    run(other, 0, 60_000);
    expect(steady.configured).toHaveLength(1);
  });

  test('costs less than it saves: a start of a second is worth it for many calls, or after many at the same rate', () => {
    // Calls of some 4 ms: 2 a second take 8 ms of each.
    expect(changesAt(2, 1000, 30_000)).toBe(0);
    expect(changesAt(2, 1000, 240_000)).toBe(1);
    expect(changesAt(200, 1000, 10_000)).toBe(1);
    expect(changesAt(2, 10, 10_000)).toBe(1);
  });

  test('does not follow a load that comes and goes faster than a start pays', () => {
    const [quickly, slowly] = [changesOver(1), changesOver(2000)];
    expect(slowly).toBeLessThan(quickly / 4);
  });

  test('that cannot start is tried ever more rarely, and applied once it can', async () => {
    const pool = new FakePool();
    const one = start(pool);
    pool.failure = 'the limit of instances of all functions is reached';
    pool.set({ arrivalsPerSecond: 5, queueDepth: 0.05 });
    let nowMs = 0;
    const runFor = async (forMs: number): Promise<void> => {
      for (const untilMs = nowMs + forMs; nowMs < untilMs; nowMs += 500) {
        look(one, nowMs);
        // By then the outcome is known.
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    await runFor(600_000);
    // Intervals of 2, 4, 8, 16, 32 and then 64 seconds.
    expect(pool.configured.length).toBeGreaterThan(10);
    expect(pool.configured.length).toBeLessThan(16);
    pool.failure = undefined;
    await runFor(65_000);
    expect(pool.state.configuration).toBeDefined();
  });

  test('keeps to the cores that the function may count on', () => {
    const pool = new FakePool();
    pool.cores = 1;
    const one = start(pool);
    pool.set({ arrivalsPerSecond: 5, queueDepth: 0.05 });
    run(one, 0, 4000);
    expect(pool.shapes).toEqual([[[1, 1, 1]]]);
  });

  test('takes the fewest cores that keep the SLO where that is the objective', () => {
    const pool = new FakePool();
    const one = start(pool, {}, { objective: 'cores' });
    pool.set({ arrivalsPerSecond: 5, queueDepth: 0.05 });
    run(one, 0, 4000);
    expect(pool.shapes).toEqual([[[1, 1, 1]]]);
  });

  test('is left alone without requests, without a profile, and when configuring is off', () => {
    const silent = new FakePool();
    run(start(silent), 0, 4000);
    expect(silent.configured).toEqual([]);
    const busy = { arrivalsPerSecond: 50, queueDepth: 1 };
    const unknown = new FakePool();
    unknown.set(busy);
    run(start(unknown, { profileOf: () => undefined }), 0, 4000);
    const off = new FakePool();
    off.set(busy);
    run(start(off, {}, { configure: 'off' }), 0, 4000);
    expect([...unknown.configured, ...off.configured]).toEqual([]);
  });
});

describe('prediction', () => {
  const warm = {
    configuration: { groups: [{ instances: 4, threads: 1, batch: 1 }] },
    instances: [{ pid: 1, state: 'idle', threads: 1, cores: [0], bytes: 0 }],
  } as const;

  test('is the service time on an idle pool, and that beside others on a busy one', () => {
    const pool = new FakePool();
    const one = start(pool);
    pool.set(warm);
    expect(one.predictCpu('f@1')).toEqual({ serviceMs: 10, cores: 1 });
    pool.set({ inFlight: 4 });
    expect(one.predictCpu('f@1')?.serviceMs).toBe(12);
  });

  test('costs nothing for functions that are not called, however many there are', () => {
    const asked: string[] = [];
    const pool = new FakePool();
    const one = start(pool, { profileOf: (key) => (asked.push(key), profile) });
    pool.set({ arrivalsPerSecond: 1 });
    one.tick(0);
    expect(asked).toEqual([]);
    one.called('f@1');
    one.tick(500);
    one.tick(1000);
    pool.set({ arrivalsPerSecond: 0 });
    one.tick(1500);
    one.tick(2000);
    expect(asked).toHaveLength(3);
  });

  test('does not exist for a function that was not measured', () => {
    const pool = new FakePool();
    expect(start(pool, { profileOf: () => undefined }).predictCpu('f@1')).toBeUndefined();
    expect(start(pool).predictCpu('g@1')).toBeUndefined();
  });

  test('is compared with what is observed, and corrected by it', () => {
    const pool = new FakePool();
    const statistics = new Statistics();
    const one = start(pool, { statistics }, { configure: 'off' });
    pool.set({ ...warm, arrivalsPerSecond: 5 });
    let nowMs = 0;
    look(one, nowMs);
    for (let window = 0; window < 40; window++) {
      for (let answer = 0; answer < 20; answer++) one.answered('f@1', 20, 20, nowMs + answer * 200);
      look(one, (nowMs += 4000));
    }
    const { predictionError } = statistics.of(version);
    expect(predictionError.count).toBeGreaterThan(10);
    // The first window was off by half; the last ones by less than a hundredth.
    expect(predictionError.counts[0]).toBeGreaterThan(0);
    expect(one.predictCpu('f@1')?.serviceMs).toBeCloseTo(20, 0);
  });
});
