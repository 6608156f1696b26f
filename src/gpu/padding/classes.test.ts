import { expect, test } from 'vitest';
import { shapeClasses } from './classes.ts';

const input = (name: string, shape: readonly number[], dimensionNames: readonly (string | undefined)[] = []) => ({
  name,
  shape,
  dimensionNames: shape.map((_, axis) => dimensionNames[axis]),
});

test('batches of 5 to 8 texts have the program for 8, each length its own', () => {
  const ofClass = shapeClasses([
    input('ids', [-1, -1], ['batch', 'sequence']),
    input('mask', [-1, -1], ['batch', 'sequence']),
  ]);
  for (const rows of [5, 6, 7, 8])
    expect(ofClass({ ids: [rows, 77], mask: [rows, 77] })).toEqual({ ids: [8, 77], mask: [8, 77] });
});

test('a batch that stands behind the time is found by its name', () => {
  const ofClass = shapeClasses([input('x', [-1, -1, 8], ['time', 'batch'])]);
  expect(ofClass({ x: [3, 5, 8] })).toEqual({ x: [3, 8, 8] });
});

test('open first axes without a name are those of the rows', () => {
  expect(shapeClasses([input('x', [-1, 3])])({ x: [3, 3] })).toEqual({ x: [4, 3] });
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
    expect(ofClass(shapes)).toEqual(shapes);
  expect(shapeClasses([input('x', [5, 3])])({ x: [5, 3] })).toEqual({ x: [5, 3] });
});
