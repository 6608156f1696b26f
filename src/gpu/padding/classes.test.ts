import { expect, test } from 'vitest';
import { shapeClasses } from './classes.ts';
import { shaped } from '../../../test/support/shapes.ts';

const input = (name: string, shape: readonly number[], dimensionNames: readonly (string | undefined)[] = []) => ({
  name,
  shape,
  dimensionNames: shape.map((_, axis) => dimensionNames[axis]),
});

test('batches of 5 to 8 texts share a program, and each text length has its own', () => {
  const ofClass = shapeClasses([
    input('ids', [-1, -1], ['batch', 'sequence']),
    input('mask', [-1, -1], ['batch', 'sequence']),
  ]);
  for (const rows of [5, 6, 7, 8])
    expect(ofClass(shaped({ ids: [rows, 77], mask: [rows, 77] }))).toEqual(shaped({ ids: [8, 77], mask: [8, 77] }));
});

test('a batch axis behind the time axis is found by its name', () => {
  const ofClass = shapeClasses([input('x', [-1, -1, 8], ['time', 'batch'])]);
  expect(ofClass(shaped({ x: [3, 5, 8] }))).toEqual(shaped({ x: [3, 8, 8] }));
});

test('an open first axis without a name is that of the rows', () => {
  expect(shapeClasses([input('x', [-1, 3])])(shaped({ x: [3, 3] }))).toEqual(shaped({ x: [4, 3] }));
});

test('batches of 0 to 2, inputs of different batches, and fixed ones keep their shapes', () => {
  const ofClass = shapeClasses([input('a', [-1, 2], ['batch']), input('b', [-1, 2], ['batch'])]);
  for (const shapes of [
    { a: [0, 2], b: [0, 2] },
    { a: [1, 2], b: [1, 2] },
    { a: [2, 2], b: [2, 2] },
    { a: [3, 2], b: [5, 2] },
  ])
    // prettier-ignore
    expect(ofClass(shaped(shapes))).toEqual(shaped(shapes));
  expect(shapeClasses([input('x', [5, 3])])(shaped({ x: [5, 3] }))).toEqual(shaped({ x: [5, 3] }));
});

test('an input whose values a program is made for has no rows', () => {
  const ofClass = shapeClasses([input('x', [-1, 3]), input('sizes', [-1])]);
  const sizes = { name: 'sizes', shape: [3], values: [1, 3, -1] };
  expect(ofClass([{ name: 'x', shape: [5, 3] }, sizes])).toEqual([{ name: 'x', shape: [8, 3] }, sizes]);
});
