import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { BatchEstimator, lowerPowerOfTwo } from './estimator.ts';

/** Feeds depths and returns the batch size that the estimator calls for after each. */
function feed(estimator: BatchEstimator, depths: readonly number[]): number[] {
  return depths.map((depth) => {
    estimator.observe(depth);
    return estimator.smoothedBatch;
  });
}

const times = (count: number, depth: number): number[] => Array.from({ length: count }, () => depth);
/** The sizes without repetitions in a row. */
const steps = (sizes: readonly number[]): number[] => sizes.filter((size, index) => size !== sizes[index - 1]);

describe('the estimated batch size', () => {
  test('follows a step from 8 to 64 and back within forty samples', () => {
    const estimator = new BatchEstimator();
    expect(steps(feed(estimator, times(20, 8)))).toEqual([8]);
    expect(feed(estimator, times(40, 64)).at(-1)).toBe(64);
    expect(feed(estimator, times(40, 8)).at(-1)).toBe(8);
  });

  test('a spike changes nothing', () => {
    expect(steps(feed(new BatchEstimator(), [...times(20, 8), 60, ...times(20, 8)]))).toEqual([8]);
  });

  test('a load between two powers of two does not flip between them', () => {
    const noisy = Array.from({ length: 400 }, (_, index) => 13 + ((index * 7) % 5) - 2);
    expect(steps(feed(new BatchEstimator(), noisy))).toEqual([8]);
  });

  test('is 1 before the first depth', () => {
    expect(new BatchEstimator()).toMatchObject({ smoothedBatch: 1, depth: 0 });
  });
});

describe('properties', () => {
  const depths = fc.array(fc.double({ min: 0, max: 300, noNaN: true }), { minLength: 1, maxLength: 120 });

  test('sizes are powers of two up to 64', () => {
    fc.assert(
      fc.property(depths, (values) => {
        for (const size of feed(new BatchEstimator(), values)) {
          expect(Number.isInteger(Math.log2(size)) && size <= 64).toBe(true);
        }
      }),
    );
  });

  test('a steady depth settles on its next lower power of two, whatever came before', () => {
    fc.assert(
      fc.property(depths, fc.integer({ min: 1, max: 64 }), (values, depth) => {
        const estimator = new BatchEstimator();
        feed(estimator, values);
        feed(estimator, times(60, depth));
        expect(estimator.smoothedBatch).toBe(lowerPowerOfTwo(depth * 1.03));
      }),
    );
  });

  test('the smoothed depth stays between the least and the greatest seen', () => {
    fc.assert(
      fc.property(depths, (values) => {
        const estimator = new BatchEstimator();
        feed(estimator, values);
        expect(estimator.depth).toBeGreaterThanOrEqual(Math.min(...values) - 1e-9);
        expect(estimator.depth).toBeLessThanOrEqual(Math.max(...values) + 1e-9);
      }),
    );
  });
});

test('the next lower power of two', () => {
  expect([0, 0.5, 1, 1.99, 2, 3, 4, 63.9, 64].map(lowerPowerOfTwo)).toEqual([1, 1, 1, 1, 2, 2, 4, 32, 64]);
});
