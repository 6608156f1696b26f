/** Benchmarks with little time: what they leave out, and that they say so. */
import { afterEach, expect, test } from 'vitest';
import { BenchmarkNotPossible } from '../../bench/benchmark.ts';
import { Budget, inTime, NotInTime } from '../../bench/budget.ts';
import { loadBenchmark } from '../../bench/registry.ts';
import { environmentNow } from '../support/environment.ts';

// A benchmark sets the driver that its processes load.
afterEach(environmentNow());

test('a step begins only if it would end in time, were it as long as the last one', async () => {
  let ms = 0;
  const budget = new Budget(1000, () => ms);
  expect(budget.fits(['level'])).toBe(true);
  await budget.time('level', async () => await Promise.resolve((ms += 400)));
  expect(budget.fits(['level'])).toBe(true);
  expect(budget.fits(['level'], 700)).toBe(false);
  await budget.time('level', async () => await Promise.resolve((ms += 500)));
  expect(budget.fits(['level'])).toBe(false);
  expect(budget.fits([])).toBe(true);
  expect(budget.shareMs(0.5)).toBe(950);
});

function deferred(): { promise: Promise<void>; reject: (error: Error) => void } {
  let reject!: (error: Error) => void;
  const promise = new Promise<void>((_, refuse) => (reject = refuse));
  return { promise, reject };
}

test('work that does not end in time is left, and its failure afterwards goes nowhere', async () => {
  const { promise, reject } = deferred();
  await expect(inTime(promise, performance.now() + 5)).rejects.toThrow(NotInTime);
  reject(new Error('late'));
  await expect(inTime(Promise.resolve(3), performance.now() + 60_000)).resolves.toBe(3);
});

const tooFew = { small: true, seed: 1, minutes: 0.02, progress: () => undefined };

test('the benchmark serve writes no result when its minutes end before anything was measured, and says why', async () => {
  const benchmark = await loadBenchmark('serve');
  const run = benchmark.run(tooFew);
  await expect(run).rejects.toThrow(BenchmarkNotPossible);
  await expect(run).rejects.toThrow('0.02 minutes were too few');
});

test('the benchmark chrion has its planned figures when its minutes end before anything was measured, and says so', async () => {
  const benchmark = await loadBenchmark('chrion');
  const result = await benchmark.run(tooFew);
  for (const { rows, columns } of result.tables) {
    expect(rows.length).toBeGreaterThan(0);
    for (const row of rows) expect(row).toHaveLength(columns.length);
  }
  expect(result.figures).toEqual({});
  expect(result.limits.join('; ')).toMatch(/the 0.02 minutes were too few|not.* measured/);
});
