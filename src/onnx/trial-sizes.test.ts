import fc from 'fast-check';
import { expect, test } from 'vitest';
import { dimensionKey, openDimensions, shapesWith, trialShapes, trialSizes, unknownSize } from './trial-sizes.ts';

const input = (name: string, shape: readonly number[], dimensionNames: readonly (string | undefined)[] = []) => ({
  name,
  shape,
  dimensionNames: shape.map((_, axis) => dimensionNames[axis]),
});

const shapeOf = (shapes: ReturnType<typeof shapesWith>, name: string): readonly number[] | undefined =>
  shapes.find((each) => each.name === name)?.shape;

test('a batch is 1 first, an image 224x224 with three channels, a sequence 128 and then shorter', () => {
  const inputs = [
    input('image', [-1, 3, -1, -1]),
    input('any-image', [-1, -1, -1, -1]),
    input('tokens', [-1, -1], ['batch', 'sequence']),
    input('time-first', [-1, -1, 8], ['frames', 'batch']),
    input('fixed', [2, 5]),
  ];
  const [first, ...others] = trialShapes(inputs);
  expect(first.map(({ shape }) => shape)).toEqual([
    [1, 3, 224, 224],
    [1, 3, 224, 224],
    [1, 128],
    [1, 1, 8],
    [2, 5],
  ]);
  const lengths = others.slice(0, 6).map((tried) => shapeOf(tried, 'tokens')?.[1]);
  expect(lengths).toEqual([77, 64, 32, 16, 8, 1]);
});

test('a cache is empty at first, and a mask over cache and tokens has the sum of both', () => {
  const [sizes] = trialSizes([
    input('ids', [-1, -1], ['batch', 'sequence_length']),
    input('mask', [-1, -1], ['batch', 'past_sequence_length + sequence_length']),
    input('next', [-1, -1], ['batch', 'past_sequence_length + 1']),
    input('past', [-1, 4, -1, 8], ['batch', undefined, 'past_sequence_length']),
  ]);
  expect(sizes).toMatchObject({
    sequence_length: 128,
    'past_sequence_length + sequence_length': 128,
    'past_sequence_length + 1': 1,
    past_sequence_length: 0,
  });
});

test('sound of 512 and of 16,000 samples is tried beside a state of one row, with names and without', () => {
  for (const names of [[], ['batch', 'samples']]) {
    const shapes = trialShapes([input('audio', [-1, -1], names), input('state', [2, -1, 128]), input('rate', [])]);
    const tried = shapes.map((each) => JSON.stringify(each.map(({ shape }) => shape)));
    for (const samples of [1, 16, 128, 512, 16_000]) expect(tried).toContain(`[[1,${samples}],[2,1,128],[]]`);
  }
});

test('the smallest sizes come first for an example', () => {
  const sizes = trialSizes([input('audio', [-1, -1])], {}, 'smallest').map((each) => each['audio.1']);
  expect(sizes.slice(0, 3)).toEqual([1, 16, 32]);
});

test('a model without open dimensions has one trial', () => {
  expect(trialShapes([input('x', [1, 3, 8, 8])])).toEqual([[{ name: 'x', shape: [1, 3, 8, 8] }]]);
  expect(trialShapes([])).toEqual([[]]);
});

test('a size for a dimension that is not open is refused by name', () => {
  const inputs = [input('x', [-1, -1, 3], ['batch'])];
  expect(unknownSize(inputs, { batch: 2, 'x.1': 7 })).toBeUndefined();
  expect(unknownSize(inputs, { 'x.2': 3 })).toBe("the model has no open dimension 'x.2' (open there: batch, x.1)");
  expect(unknownSize([input('x', [3])], { rows: 3 })).toBe("the model has no open dimension 'rows' (open there: none)");
});

const names = fc.constantFrom(
  undefined,
  'batch',
  'sequence',
  'past_length',
  'past_length + sequence',
  'height',
  'channels',
  'whatever',
);
const anyInput = fc.array(fc.tuple(fc.constantFrom(-1, -1, 1, 2, 128), names), { maxLength: 5 }).map((dimensions) => ({
  shape: dimensions.map(([size]) => size),
  dimensionNames: dimensions.map(([size, name]) => (size === -1 ? name : undefined)),
}));
const anyInputs = fc
  .array(anyInput, { maxLength: 4 })
  .map((all) => all.map((each, index) => Object.assign(each, { name: `i${index}` })));

test('every trial fits the model, gives equal names one size, keeps sizes that are given, and is tried once', () => {
  fc.assert(
    fc.property(anyInputs, fc.constantFrom('usual', 'smallest'), fc.nat({ max: 5 }), (inputs, order, size) => {
      const open = [...openDimensions(inputs)];
      const given = Object.fromEntries(open.filter((_, index) => index % 2 === 0).map((key) => [key, size]));
      const trials = trialSizes(inputs, given, order);
      expect(new Set(trials.map((each) => JSON.stringify(each))).size).toBe(trials.length);
      for (const sizes of trials) {
        expect(Object.keys(sizes).toSorted()).toEqual(open.toSorted());
        expect(sizes).toMatchObject(given);
        for (const [index, { shape }] of shapesWith(inputs, sizes).entries()) {
          const spec = inputs[index]!;
          for (const [axis, found] of shape.entries()) {
            const declared = spec.shape[axis]!;
            expect(found).toBe(declared === -1 ? sizes[dimensionKey(spec, axis)] : declared);
          }
        }
      }
      for (const shapes of trialShapes(inputs, given).slice(1)) {
        for (const { shape } of shapes) expect(shape.reduce((all, each) => all * each, 1)).toBeLessThanOrEqual(2 ** 22);
      }
    }),
  );
});
