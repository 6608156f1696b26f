import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { LayerMethod } from './algorithm.ts';
import { methodsWithin } from './within.ts';

const layer = (bytes: number, addedMs: number): { bytes: number; exec: number; dha: number } => ({
  bytes,
  exec: 1,
  dha: 1 + addedMs,
});
const loadAll = (count: number): LayerMethod[] => Array.from({ length: count }, () => 'load');

test('the layers whose reads from host memory cost least per byte stay there', () => {
  const layers = [layer(40, 8), layer(40, 1), layer(40, 4)];

  expect(methodsWithin(layers, loadAll(3), 80)).toEqual(['load', 'dha', 'load']);
  expect(methodsWithin(layers, loadAll(3), 79)).toEqual(['load', 'dha', 'dha']);
});

test('a layer that is larger than the memory stays, and all others are loaded', () => {
  expect(methodsWithin([layer(10, 1), layer(200, 90), layer(10, 1)], loadAll(3), 100)).toEqual(['load', 'dha', 'load']);
});

test('a small layer is loaded after all if a large one left room for it', () => {
  expect(methodsWithin([layer(10, 1), layer(90, 90)], loadAll(2), 50)).toEqual(['load', 'dha']);
});

test('for any layers no more are loaded than fit, none that fits is left out, and nothing changes if all fit', () => {
  const profiled = fc.record({ bytes: fc.nat(50), addedMs: fc.nat(20), isLoaded: fc.boolean() });
  fc.assert(
    fc.property(fc.array(profiled, { maxLength: 12 }), fc.nat(300), (given, capacityBytes) => {
      const layers = given.map(({ bytes, addedMs }) => layer(bytes, addedMs));
      const methods = given.map(({ bytes, isLoaded }): LayerMethod => (isLoaded && bytes > 0 ? 'load' : 'dha'));
      const bytesOf = (chosen: readonly LayerMethod[]): number =>
        layers.reduce((sum, { bytes }, index) => sum + (chosen[index] === 'load' ? bytes : 0), 0);

      const within = methodsWithin(layers, methods, capacityBytes);

      expect(bytesOf(within)).toBeLessThanOrEqual(capacityBytes);
      const isChanged = within.some((method, index) => method !== methods[index]);
      expect(isChanged).toBe(bytesOf(methods) > capacityBytes);
      const stay = layers.filter((_, index) => methods[index] === 'load' && within[index] === 'dha');
      expect(stay.filter(({ bytes }) => bytesOf(within) + bytes <= capacityBytes)).toEqual([]);
      expect(within.filter((method, index) => method === 'load' && methods[index] === 'dha')).toEqual([]);
    }),
  );
});
