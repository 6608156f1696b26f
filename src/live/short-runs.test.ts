import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ShortRuns, WarmTimes } from './short-runs.ts';

test('as many short runs as make up a millisecond, and eight at most, are under way when the next one is ordered', () => {
  const times = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 1, maxLength: 40 });
  fc.assert(
    fc.property(times, fc.infiniteStream(fc.nat(7)), (expected, picks) => {
      const runs = new ShortRuns();
      const left = [...expected];
      const underWay: { readonly ms: number; isFree: boolean; over: () => void }[] = [];
      /** The scheduler: it orders the next run as soon as it may. */
      const next = (): void => {
        const ms = left.shift();
        if (ms === undefined) return;
        expect(underWay.length).toBeLessThan(8);
        expect(underWay.reduce((sum, each) => sum + each.ms, 0)).toBeLessThanOrEqual(1);
        const run = { ms, isFree: false, over: (): void => undefined };
        underWay.push(run);
        run.over = runs.ordered(ms, () => {
          expect(run.isFree).toBe(false);
          run.isFree = true;
          next();
        });
      };
      next();
      while (underWay.length > 0) {
        const [ended] = underWay.splice(picks.next().value % underWay.length, 1);
        ended!.over();
        // Its own end frees the GPU in any case.
        if (!ended!.isFree) next();
      }
      expect(left).toEqual([]);
    }),
  );
});

test('a run is short where the latest of its size was, and never where none was timed', () => {
  const times = new WarmTimes();
  expect(times.shortMs(16)).toBeUndefined();
  times.ran(16, 0.2);
  times.ran(1600, 4);
  expect(times.shortMs(16)).toBe(0.2);
  expect(times.shortMs(1600)).toBeUndefined();
  expect(times.shortMs(160)).toBeUndefined();
  times.ran(16, 1.5);
  expect(times.shortMs(16)).toBeUndefined();
});

test('only so many sizes are kept: the one that was timed first goes', () => {
  const times = new WarmTimes();
  for (let size = 0; size <= 64; size++) times.ran(size, 0.1);
  expect(times.shortMs(0)).toBeUndefined();
  expect(times.shortMs(1)).toBe(0.1);
  expect(times.shortMs(64)).toBe(0.1);
});

test.each([
  [0.05, 8],
  [0.3, 4],
  [0.6, 2],
  [1, 2],
])('runs of %d ms are ordered at once until the GPU has %d', (ms, count) => {
  const runs = new ShortRuns();
  let ordered = 0;
  const next = (): void => {
    ordered++;
    runs.ordered(ms, next);
  };
  next();
  expect(ordered).toBe(count);
});
