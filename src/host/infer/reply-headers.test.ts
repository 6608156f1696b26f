import fc from 'fast-check';
import { expect, test } from 'vitest';
import { toThousandths } from './reply.ts';

test('a header gives milliseconds as the shortest text of the number rounded to microseconds', () => {
  const numbers = fc.oneof(
    fc.double({ min: 0, max: 10_000 }),
    fc.double({ noNaN: true }),
    fc.nat().map((n) => n / 1000),
  );
  fc.assert(
    fc.property(numbers, (value) => {
      expect(toThousandths(value)).toBe(String(Math.round(value * 1000) / 1000));
    }),
    { numRuns: 600 },
  );
  expect([0, 0.5, 1.25, 12, 999.9996].map(toThousandths)).toEqual(['0', '0.5', '1.25', '12', '1000']);
});
