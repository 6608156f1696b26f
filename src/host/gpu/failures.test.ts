import fc from 'fast-check';
import { expect, test } from 'vitest';
import { GpuError, type GpuErrorCode } from '../../gpu/index.ts';
import { FailureBook, failuresMax } from './failures.ts';
import type { GpuRunner } from './shell-types.ts';

function bookAt(): { readonly book: FailureBook; readonly pass: (ms: number) => void } {
  let nowMs = 1000;
  return { book: new FailureBook(() => nowMs), pass: (ms) => (nowMs += ms) };
}

test('the third failure in a row pauses a function, a success between them does not', () => {
  const { book } = bookAt();
  book.failed('a', 'no');
  book.failed('a', 'no');
  expect(book.whyNot('a')).toBeUndefined();
  book.succeeded('a');
  for (let count = 0; count < 2; count++) book.failed('a', 'no');
  expect(book.whyNot('a')).toBeUndefined();
  book.failed('a', 'too many blocks');
  expect(book.whyNot('a')).toBe('3 runs failed in a row, the last with: too many blocks; tried again in 2 s');
  expect(book.whyNot('b')).toBeUndefined();
  expect([...book.paused()]).toEqual([['a', 'too many blocks']]);
});

test('one run that did not end is enough for the longest pause', () => {
  const { book, pass } = bookAt();
  book.hung('a', 'a run did not end');
  expect(book.whyNot('a')).toBe('a run did not end; tried again in 300 s');
  expect([...book.paused()]).toEqual([['a', 'a run did not end']]);
  pass(300_000);
  expect(book.whyNot('a')).toBeUndefined();
});

test('after the pause one invocation tries, and a failure makes the next pause longer', () => {
  const { book, pass } = bookAt();
  for (let count = 0; count < 3; count++) book.failed('a', 'no');
  pass(2000);
  expect(book.whyNot('a')).toBeUndefined();
  book.begin('a');
  expect(book.whyNot('a')).toMatch(/tried again now$/);
  book.failed('a', 'no');
  book.ended('a');
  expect(book.whyNot('a')).toMatch(/tried again in 4 s$/);
  pass(4000);
  book.begin('a');
  book.succeeded('a');
  book.ended('a');
  expect(book.whyNot('a')).toBeUndefined();
  expect([...book.paused()]).toEqual([]);
});

test('pauses never shrink while it fails, and never last longer than five minutes', () => {
  fc.assert(
    fc.property(fc.integer({ min: failuresMax, max: 40 }), (failures) => {
      const { book, pass } = bookAt();
      let beforeMs = 0;
      for (let count = 1; count <= failures; count++) {
        book.failed('a', 'no');
        if (count < failuresMax) continue;
        let pauseMs = 0;
        for (; book.whyNot('a') !== undefined; pauseMs += 1000) pass(1000);
        expect(pauseMs).toBeGreaterThanOrEqual(beforeMs);
        expect(pauseMs).toBeLessThanOrEqual(300_000);
        beforeMs = pauseMs;
      }
    }),
    { numRuns: 20 },
  );
});

test.each<[GpuErrorCode, boolean]>([
  ['misuse', true],
  ['out-of-memory', true],
  ['host-memory', true],
  ['weights-unreadable', true],
  ['died', false],
  ['poisoned', false],
  ['cancelled', false],
  ['invalid', false],
])('a run that ends with %s counts against its function: %s', async (code, counts) => {
  const { book } = bookAt();
  const runner = book.watch({ run: () => Promise.reject(new GpuError(code, 'why')) } as unknown as GpuRunner);
  for (let run = 0; run < failuresMax; run++) {
    await expect(runner.run('a', [], {} as Parameters<GpuRunner['run']>[2])).rejects.toMatchObject({ code });
  }
  expect(book.whyNot('a') !== undefined).toBe(counts);
});
