import fc from 'fast-check';
import { expect, test } from 'vitest';
import { comesCoded, layersAsTheyAre } from './forms.ts';

const shape = fc.record({
  bytes: fc.integer({ min: 1000, max: 2 ** 31 }),
  load: fc.double({ min: 0.001, max: 100, noNaN: true }),
});

test('a layer comes coded up to the rate of the link and 95% of its bytes, and as it is one step beyond either', () => {
  fc.assert(
    fc.property(shape, ({ bytes, load }) => {
      const most = { bytes: Math.floor(0.95 * bytes), decode: load };
      expect(comesCoded({ bytes, load, coded: most })).toBe(true);
      expect(comesCoded({ bytes, load, coded: { ...most, decode: load * (1 + 1e-12) } })).toBe(false);
      expect(comesCoded({ bytes, load, coded: { ...most, bytes: most.bytes + 1 } })).toBe(false);
      expect(comesCoded({ bytes, load })).toBe(false);
    }),
  );
});

test('layers without a coded form are not among those that come as they are by choice', () => {
  const layer = { name: '', kind: 'linear', bytes: 1000, load: 1, exec: 1, dha: 1 };
  const slow = { ...layer, coded: { bytes: 800, decode: 2 } };
  const fast = { ...layer, coded: { bytes: 800, decode: 1 } };
  expect(layersAsTheyAre({ layers: [layer, slow, fast, slow] })).toEqual([1, 3]);
});
