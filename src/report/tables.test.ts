import fc from 'fast-check';
import { expect, test } from 'vitest';
import { percentsApart } from './tables.ts';

test('a share below another is never printed as the same, down to a millionth', () => {
  const share = fc.integer({ min: 0, max: 1e5 }).map((count) => count / 1e5);
  fc.assert(
    fc.property(share, share, (one, other) => {
      const [first, second] = percentsApart(one, other).map(Number.parseFloat);
      expect(Math.sign(first! - second!)).toBe(Math.sign(one - other));
    }),
  );
});

test('shares that the usual digit tells apart have no more digits', () => {
  expect(percentsApart(0.5, 0.99)).toEqual(['50.0%', '99.0%']);
  expect(percentsApart(0.98966, 0.99)).toEqual(['98.97%', '99.00%']);
});
