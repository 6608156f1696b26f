/** The live shell with functions that have several plans: they shrink and grow. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Bench, warmMs, wholeBytes } from '../../test/support/gpu-shell.ts';

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
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
    expect(orders.indexOf('keep 0,2 of f0@1 on 0')).toBeLessThan(orders.indexOf('load f3@1 to 0 under memory'));
    expect(orders).toContain('keep 0,2 of f0@1 on 0');
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
    const removed = bench.shell.functions.remove('f0@1');
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
      bench.shell.functions.offer(
        { key: 'f1@1', settings: { sloMs: 100, priority: 1 } },
        { ...bench.plans, offers },
        false,
      ),
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
