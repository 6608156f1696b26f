import fc from 'fast-check';
import { expect, test } from 'vitest';
import { toMillionths, toThousandths } from './infer.ts';

test.each([
  { unit: 'milliseconds', text: toThousandths, perUnit: 1000 },
  { unit: 'seconds', text: toMillionths, perUnit: 1e6 },
])('a header gives $unit as the shortest text of the number rounded to microseconds', ({ text, perUnit }) => {
  const numbers = fc.oneof(
    fc.double({ min: 0, max: 10_000 }),
    fc.double({ noNaN: true }),
    fc.nat().map((n) => n / perUnit),
  );
  fc.assert(
    fc.property(numbers, (value) => {
      expect(text(value)).toBe(String(Math.round(value * perUnit) / perUnit));
    }),
    { numRuns: 600 },
  );
});

test('trailing zeros are left out', () => {
  expect([0, 0.5, 1.25, 12, 999.9996].map(toThousandths)).toEqual(['0', '0.5', '1.25', '12', '1000']);
  expect([0, 0.5, 0.00075, 0.0101, 12, 3e-7].map(toMillionths)).toEqual(['0', '0.5', '0.00075', '0.0101', '12', '0']);
});
