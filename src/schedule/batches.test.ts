import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { batchDueMs, nextBatch, splitBatch, type BatchPlace } from './batches.ts';
import { LatencyBook } from './latency-book.ts';

const places = fc.array(
  fc.record({ batch: fc.integer({ min: 1, max: 8 }), fixedMs: fc.nat(20), rowMs: fc.integer({ min: 1, max: 10 }) }),
  { minLength: 1, maxLength: 5 },
);

function toPlaces(list: readonly { batch: number; fixedMs: number; rowMs: number }[]): BatchPlace[] {
  return list.map(({ batch, fixedMs, rowMs }) => ({ batch, expectedMs: (rows) => fixedMs + rowMs * rows }));
}

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

/** When the slowest instance with any rows is done. */
function slowestMs(list: readonly BatchPlace[], counts: readonly number[]): number {
  return Math.max(0, ...list.map((place, at) => ((counts[at] ?? 0) > 0 ? place.expectedMs(counts[at] ?? 0) : 0)));
}

/** The least of {@link slowestMs} over every way to spread so many rows. */
function bestMs(list: readonly BatchPlace[], rows: number, at = 0): number {
  if (at === list.length) return rows === 0 ? 0 : Infinity;
  const place = list[at];
  let best = Infinity;
  for (let count = 0; count <= Math.min(rows, place?.batch ?? 0); count++) {
    const ownMs = count === 0 ? 0 : (place?.expectedMs(count) ?? 0);
    best = Math.min(best, Math.max(ownMs, bestMs(list, rows - count, at + 1)));
  }
  return best;
}

describe('a batch', () => {
  it('is taken from the front, each request once, and no instance gets more than its rows', () => {
    fc.assert(
      fc.property(places, fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 40 }), (list, rows) => {
        const parts = splitBatch(rows, toPlaces(list));
        const taken = parts.flat().sort((a, b) => a - b);
        expect(taken).toEqual(taken.map((_, index) => index));
        const largest = Math.max(...list.map(({ batch }) => batch));
        for (const [at, part] of parts.entries()) {
          const own = sum(part.map((index) => rows[index] ?? 0));
          const tooLarge = part.length === 1 && own > largest;
          expect(tooLarge || own <= (list[at]?.batch ?? 0)).toBe(true);
          expect([...part].sort((a, b) => a - b)).toEqual(part);
        }
        expect(taken.length > 0).toBe(rows.length > 0);
      }),
    );
  });

  it('that is full fills every instance', () => {
    fc.assert(
      fc.property(places, fc.nat(10), (list, more) => {
        const capacity = sum(list.map(({ batch }) => batch));
        const parts = splitBatch(Array<number>(capacity + more).fill(1), toPlaces(list));
        expect(parts.map((part) => part.length)).toEqual(list.map(({ batch }) => batch));
      }),
    );
  });

  it('that is not full is spread so that no other split would be done sooner', () => {
    const few = fc.array(
      fc.record({ batch: fc.integer({ min: 1, max: 5 }), fixedMs: fc.nat(20), rowMs: fc.integer({ min: 1, max: 10 }) }),
      { minLength: 1, maxLength: 3 },
    );
    fc.assert(
      fc.property(few, fc.nat(15), (list, count) => {
        const own = toPlaces(list);
        const rows = Math.min(count, sum(list.map(({ batch }) => batch)));
        const parts = splitBatch(Array<number>(rows).fill(1), own);
        const counts = parts.map((part) => part.length);
        expect(sum(counts)).toBe(rows);
        expect(slowestMs(own, counts)).toBe(bestMs(own, rows));
      }),
    );
  });
});

describe('the latency that is expected of a run', () => {
  it('is what was measured, a line between two sizes, and never falls with more rows', () => {
    const runs = fc.array(
      fc.record({
        threads: fc.integer({ min: 1, max: 4 }),
        rows: fc.integer({ min: 1, max: 64 }),
        ms: fc.integer({ min: 1, max: 1000 }),
      }),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(runs, fc.integer({ min: 1, max: 4 }), (list, threads) => {
        const book = new LatencyBook();
        for (const run of list) book.observe(run.threads, run.rows, run.ms);
        let beforeMs = 0;
        for (let rows = 1; rows <= 64; rows++) {
          const ms = book.ms(threads, rows);
          expect(ms).toBeGreaterThan(0);
          expect(ms).toBeGreaterThanOrEqual(beforeMs - 1e-9);
          beforeMs = ms;
        }
      }),
    );
    const book = new LatencyBook();
    book.observe(2, 4, 10);
    book.observe(2, 8, 20);
    expect([book.ms(2, 4), book.ms(2, 6), book.ms(2, 8)]).toEqual([10, 15, 20]);
    expect(book.ms(1, 8)).toBe(40);
  });

  it("begins with the plan's figure, until a run has been measured", () => {
    const book = new LatencyBook();
    book.expect(2, 4, 10);
    expect(book.ms(2, 4)).toBe(10);
    book.observe(2, 4, 30);
    book.expect(2, 4, 10);
    expect(book.ms(2, 4)).toBeGreaterThan(10);
  });
});

const at = (arrivalMs: number, deadlineMs = Infinity, alone = false) => ({ rows: 1, arrivalMs, deadlineMs, alone });
const callsOf = (...alone: boolean[]) =>
  alone.map((each) => ({ rows: 2, arrivalMs: 0, deadlineMs: Infinity, alone: each }));

test('a batch goes when it is full, when its first call has waited for the timeout, or when a deadline comes near', () => {
  expect(batchDueMs([at(0), at(1)], 2, 10, 8)).toBe(-Infinity);
  expect(batchDueMs([at(0), at(1)], 3, 10, 8)).toBe(10);
  expect(batchDueMs([at(0), at(1)], 3, 0, 8)).toBe(-Infinity);
  expect(batchDueMs([at(0, Infinity, true)], 3, 10, 8)).toBe(-Infinity);
  // Of 100 ms, 10 are kept for a late timer, and the run takes 20.
  expect(batchDueMs([at(0), at(0, 100)], 3, 1000, 20)).toBe(70);
});

test('a call that has seen a death goes alone, and a run of fixed rows holds one request', () => {
  const two = toPlaces([
    { batch: 4, fixedMs: 1, rowMs: 1 },
    { batch: 4, fixedMs: 1, rowMs: 1 },
  ]);
  expect(nextBatch(callsOf(false, false, true, false), two, undefined)).toEqual([[0], [1]]);
  expect(nextBatch(callsOf(true, false), two, undefined)).toEqual([[0], []]);
  expect(nextBatch(callsOf(false, false, false, false, false), two, undefined)).toEqual([
    [0, 2],
    [1, 3],
  ]);
  expect(nextBatch(callsOf(false, false, false), two, 4)).toEqual([[0], [1]]);
});
