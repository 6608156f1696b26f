import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { drawArrivals, replayedMs } from '../../bench/pools/arrivals.ts';
import { predictService } from '../../src/plan/index.ts';

/** Numbers in [0, 1) from a seed. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe('the arrivals of a load', () => {
  it('come in order, at the requested rate', () => {
    fc.assert(
      fc.property(
        fc.integer(),
        fc.integer({ min: 2, max: 60 }),
        fc.double({ min: 1, max: 80, noNaN: true }),
        (seed, count, rate) => {
          const arrivals = drawArrivals([5, 6], rate, count, randomFrom(seed));
          expect(arrivals).toHaveLength(count);
          expect(arrivals).toEqual(arrivals.toSorted((a, b) => a - b));
          expect(arrivals.at(-1)).toBeCloseTo((1000 * count) / rate, 3);
        },
      ),
      { numRuns: 20 },
    );
  });

  it('wait about as long as an endless sequence would', () => {
    for (const load of [0.3, 0.6, 0.85]) {
      const rate = (load * 2000) / 6;
      const steady = predictService([5, 6], rate);
      if (steady.state === 'overloaded') throw new Error('overloaded');
      const arrivals = drawArrivals([5, 6], rate, 400, randomFrom(7));
      expect(replayedMs([5, 6], arrivals) / steady.latencyMs).toBeCloseTo(1, 1);
    }
  });

  it('are refused if they come faster than they can be answered', () => {
    expect(() => drawArrivals([10], 101, 10, randomFrom(1))).toThrow('more than can be answered');
  });
});

describe('a replayed sequence', () => {
  it("waits while every instance is busy, and a request's time follows the number of running requests", () => {
    // Alone; beside one; waits until 10 for the first to be done, beside the second.
    expect(replayedMs([10, 12], [0, 1, 2])).toBeCloseTo((10 + 12 + (10 - 2 + 12)) / 3, 9);
  });
});
