import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { BatchEstimator, estimatorDefaults, lowerPowerOfTwo, type BatchChange } from './estimator.ts';

const options = { smoothing: 0.5, window: 5, intervalMs: 1000, batchMax: 64 };

/** Feeds depths `stepMs` apart and returns the changes. */
function feed(estimator: BatchEstimator, depths: readonly number[], fromMs: number, stepMs = 250): BatchChange[] {
  return depths.flatMap((depth, index) => estimator.observe(depth, fromMs + index * stepMs) ?? []);
}

const times = (count: number, depth: number): number[] => Array.from({ length: count }, () => depth);

describe('the estimated batch size', () => {
  test('follows a step from 8 to 64 and back, one change each way once the average is there', () => {
    const estimator = new BatchEstimator({ ...options, smoothing: 0.9 }, 8, 0);
    expect(feed(estimator, times(12, 8), 0)).toEqual([]);
    expect(feed(estimator, times(12, 64), 3500)).toMatchObject([{ from: 8, to: 64 }]);
    expect(feed(estimator, times(12, 8), 7000)).toMatchObject([{ from: 64, to: 8 }]);
  });

  test('a spike changes nothing', () => {
    const estimator = new BatchEstimator(options, 8, 0);
    expect(feed(estimator, [...times(10, 8), 60, ...times(10, 8)], 0)).toEqual([]);
  });

  test('a load between two powers of two does not flip between them', () => {
    const estimator = new BatchEstimator(estimatorDefaults, 8, 0);
    const noisy = Array.from({ length: 400 }, (_, index) => 13 + ((index * 7) % 5) - 2);
    expect(feed(estimator, noisy, 0, 500)).toEqual([]);
  });

  test('nothing is decided before the window is full', () => {
    const estimator = new BatchEstimator({ ...options, intervalMs: 0 }, 1, 0);
    expect(feed(estimator, times(4, 32), 0)).toEqual([]);
    expect(feed(estimator, [32], 1000)).toMatchObject([{ from: 1, to: 32 }]);
  });

  test('options out of range are named', () => {
    expect(() => new BatchEstimator({ ...options, smoothing: 0 }, 1, 0)).toThrow('smoothing is 0');
    expect(() => new BatchEstimator({ ...options, window: 0 }, 1, 0)).toThrow('window is 0');
    expect(() => new BatchEstimator({ ...options, intervalMs: -1 }, 1, 0)).toThrow('intervalMs is -1');
    expect(() => new BatchEstimator({ ...options, batchMax: 0 }, 1, 0)).toThrow('batchMax is 0');
  });
});

describe('properties', () => {
  const depths = fc.array(fc.double({ min: 0, max: 300, noNaN: true }), { minLength: 1, maxLength: 120 });

  test('changes are powers of two within the limit, no nearer than the interval, each from the last', () => {
    fc.assert(
      fc.property(
        depths,
        fc.integer({ min: 0, max: 3000 }),
        fc.integer({ min: 1, max: 9 }),
        fc.constantFrom(1, 4, 64),
        (values, intervalMs, window, batchMax) => {
          const estimator = new BatchEstimator({ smoothing: 0.3, window, intervalMs, batchMax }, 1, 0);
          let last: BatchChange = { from: 1, to: 1, atMs: 0 };
          for (const change of feed(estimator, values, 0)) {
            expect(Number.isInteger(Math.log2(change.to)) && change.to <= batchMax).toBe(true);
            expect(change.from).toBe(last.to);
            expect(change.to).not.toBe(change.from);
            expect(change.atMs - last.atMs).toBeGreaterThanOrEqual(intervalMs);
            last = change;
          }
          expect(estimator.batch).toBe(last.to);
        },
      ),
    );
  });

  test('a steady depth settles on its next lower power of two, whatever came before', () => {
    fc.assert(
      fc.property(depths, fc.integer({ min: 1, max: 64 }), (values, depth) => {
        const estimator = new BatchEstimator(options, 1, 0);
        feed(estimator, values, 0);
        feed(estimator, times(60, depth), values.length * 250);
        expect(estimator.batch).toBe(lowerPowerOfTwo(depth * 1.03));
      }),
    );
  });

  test('the smoothed depth stays between the least and the greatest seen', () => {
    fc.assert(
      fc.property(depths, (values) => {
        const estimator = new BatchEstimator(options, 1, 0);
        feed(estimator, values, 0);
        expect(estimator.depth).toBeGreaterThanOrEqual(Math.min(...values) - 1e-9);
        expect(estimator.depth).toBeLessThanOrEqual(Math.max(...values) + 1e-9);
      }),
    );
  });
});

test('the next lower power of two', () => {
  expect([0, 0.5, 1, 1.99, 2, 3, 4, 63.9, 64].map(lowerPowerOfTwo)).toEqual([1, 1, 1, 1, 2, 2, 4, 32, 64]);
});
