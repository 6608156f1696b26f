import fc from 'fast-check';
import { expect, test } from 'vitest';
import { arenaAlignment, planArena, type ArenaItem } from './arena.ts';

const item: fc.Arbitrary<ArenaItem> = fc
  .record({ bytes: fc.integer({ min: 0, max: 5000 }), first: fc.integer({ min: 0, max: 30 }), length: fc.nat(12) })
  .map(({ bytes, first, length }) => ({ bytes, first, last: first + length }));

const overlapInTime = (a: ArenaItem, b: ArenaItem): boolean => a.first <= b.last && b.first <= a.last;

test('values that are live together share no byte', () => {
  fc.assert(
    fc.property(fc.array(item, { maxLength: 40 }), (items) => {
      const { byteOffsets, bytes } = planArena(items);
      for (const [i, a] of items.entries()) {
        const start = byteOffsets[i]!;
        expect(start % arenaAlignment).toBe(0);
        expect(start + a.bytes).toBeLessThanOrEqual(bytes);
        for (const [j, b] of items.entries()) {
          if (i === j || a.bytes === 0 || b.bytes === 0 || !overlapInTime(a, b)) continue;
          expect(start + a.bytes <= byteOffsets[j]! || byteOffsets[j]! + b.bytes <= start).toBe(true);
        }
      }
    }),
  );
});

test('the arena is not larger than all values together, and not smaller than the values that are live at once', () => {
  fc.assert(
    fc.property(fc.array(item, { minLength: 1, maxLength: 40 }), (items) => {
      const { bytes } = planArena(items);
      const padded = items.map((each) => Math.ceil(each.bytes / arenaAlignment) * arenaAlignment);
      expect(bytes).toBeLessThanOrEqual(padded.reduce((sum, size) => sum + size, 0));
      for (let step = 0; step <= 42; step++) {
        const live = padded.filter((_, index) => items[index]!.first <= step && step <= items[index]!.last);
        expect(bytes).toBeGreaterThanOrEqual(live.reduce((sum, size) => sum + size, 0));
      }
    }),
  );
});

test('a chain of values of one size needs the bytes of two', () => {
  const items = Array.from({ length: 20 }, (_, index) => ({ bytes: 1000, first: index, last: index + 1 }));
  expect(planArena(items).bytes).toBe(2048);
});
