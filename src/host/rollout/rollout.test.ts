import fc from 'fast-check';
import { expect, test } from 'vitest';
import { verdictOf } from './rollout.ts';

const counts = fc.integer({ min: 0, max: 600 }).chain((answers) => fc.tuple(fc.constant(answers), fc.nat(answers)));

test('a version fails its trial when half of at least 20 calls failed, and passes it after 500', () => {
  fc.assert(
    fc.property(counts, ([answers, failed]) => {
      const wanted = answers >= 20 && 2 * failed >= answers ? 'failed' : answers >= 500 ? 'passed' : 'undecided';
      expect(verdictOf({ answers, failed })).toBe(wanted);
    }),
  );
});

test.each([
  [19, 19, 'undecided'],
  [20, 10, 'failed'],
  [20, 9, 'undecided'],
  [499, 249, 'undecided'],
  [500, 250, 'failed'],
  [500, 249, 'passed'],
])('after %i answers of which %i failed the verdict is %s', (answers, failed, wanted) => {
  expect(verdictOf({ answers, failed })).toBe(wanted);
});
