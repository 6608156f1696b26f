import { expect, test } from 'vitest';
import { trialShapes } from './trial-shapes.ts';
import { shaped } from '../../../test/support/shapes.ts';
import { shapeIn } from '../program/input-shapes.ts';

const input = (name: string, shape: readonly number[], dimensionNames: readonly (string | undefined)[] = []) => ({
  name,
  shape,
  dimensionNames: shape.map((_, axis) => dimensionNames[axis]),
});

test('open dimensions are tried with batch 1, images of 224x224, and shorter and shorter sequences', () => {
  const [first, ...others] = trialShapes([
    input('image', [-1, 3, -1, -1]),
    input('tokens', [-1, -1], ['batch', 'sequence']),
    input('time-first', [-1, -1, 8], ['time', 'batch']),
    input('fixed', [2, 5]),
  ]);
  expect(first).toEqual(shaped({ image: [1, 3, 224, 224], tokens: [1, 128], 'time-first': [1, 1, 8], fixed: [2, 5] }));
  expect(others.map((tried) => shapeIn(tried, 'tokens')?.[1])).toEqual([77, 64, 32, 16, 8, 1]);
});

test('a model without open dimensions has one trial shape', () => {
  expect(trialShapes([input('x', [1, 3, 8, 8])])).toEqual([shaped({ x: [1, 3, 8, 8] })]);
});
