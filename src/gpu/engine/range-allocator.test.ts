import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RangeAllocator, type Range } from './range-allocator.ts';

type Step =
  | { readonly kind: 'take'; readonly bytes: number; readonly end: 'low' | 'high' }
  | { readonly kind: 'give'; readonly which: number }
  | { readonly kind: 'slide'; readonly which: number };

const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constant('take' as const),
      bytes: fc.integer({ min: 0, max: 3000 }),
      end: fc.constantFrom('low' as const, 'high' as const),
    }),
    fc.record({ kind: fc.constant('give' as const), which: fc.nat() }),
    fc.record({ kind: fc.constant('slide' as const), which: fc.nat() }),
  ),
  { maxLength: 60 },
);

describe('the range allocator', () => {
  it('never gives out a byte twice, and has all of them back in the end', () => {
    fc.assert(
      fc.property(steps, (sequence) => {
        const allocator = new RangeAllocator(16 * 1024);
        const held: Range[] = [];
        let refusedWrongly = false;
        let slidUp = false;
        for (const step of sequence) {
          if (step.kind === 'take') {
            const range = allocator.allocate(step.bytes, step.end);
            // Refused only where no hole is large enough.
            if (range !== undefined) held.push(range);
            else refusedWrongly ||= allocator.largestFreeBytes >= allocator.sizeOf(step.bytes);
          } else if (held.length > 0) {
            const index = step.which % held.length;
            const range = held[index]!;
            if (step.kind === 'give') {
              allocator.free(range.offset);
              held.splice(index, 1);
            } else {
              const offset = allocator.slideDown(range.offset) ?? range.offset;
              slidUp ||= offset > range.offset;
              held[index] = { ...range, offset };
            }
          }
          const sorted = held.toSorted((a, b) => a.offset - b.offset);
          for (const [index, { offset, bytes }] of sorted.entries()) {
            expect(offset % 256).toBe(0);
            expect(offset + bytes).toBeLessThanOrEqual(sorted[index + 1]?.offset ?? allocator.bytes);
          }
          expect(allocator.usedBytes).toBe(held.reduce((sum, { bytes }) => sum + bytes, 0));
        }
        expect({ refusedWrongly, slidUp }).toEqual({ refusedWrongly: false, slidUp: false });
        for (const { offset } of held) allocator.free(offset);
        expect(allocator.largestFreeBytes).toBe(16 * 1024);
        expect(allocator.usedBytes).toBe(0);
      }),
    );
  });

  it('sliding every range down, low ones first, leaves one hole', () => {
    const allocator = new RangeAllocator(4096);
    const ranges = [0, 1, 2, 3, 4, 5].map(() => allocator.allocate(256)!);
    for (const index of [0, 2, 4]) allocator.free(ranges[index]!.offset);
    expect(allocator.largestFreeBytes).toBe(4096 - 6 * 256);
    for (const index of [1, 3, 5]) allocator.slideDown(ranges[index]!.offset);
    expect(allocator.largestFreeBytes).toBe(4096 - 3 * 256);
  });

  it('refuses to free what it has not allocated', () => {
    expect(() => new RangeAllocator(1024).free(256)).toThrow(/no range starts at 256/);
  });
});
