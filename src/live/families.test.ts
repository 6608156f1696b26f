import { expect, test } from 'vitest';
import { Families, type PlannedLayer } from './families.ts';

/** Layers by letters: equal beginnings are equal layers. */
const layersOf = (letters: string, executed = -1): PlannedLayer[] =>
  Array.from(letters, (_, index) => ({
    index,
    id: letters.slice(0, index + 1),
    bytes: 10,
    isLoaded: index !== executed,
  }));

function joined(...given: readonly string[]): { readonly families: Families<string>; readonly shared: () => string[] } {
  const families = new Families<string>();
  for (const [index, letters] of given.entries()) families.set(`${index} ${letters}`, [layersOf(letters)]);
  const names = given.map((letters, index) => `${index} ${letters}`);
  return { families, shared: () => names.map((name) => families.on(name, 0)?.layers.at(-1)?.id ?? '') };
}

test('one function shares nothing', () => {
  expect(joined('abc').shared()).toEqual(['']);
});

test('twins share all their layers', () => {
  const { families, shared } = joined('abc', 'abc');
  expect(shared()).toEqual(['abc', 'abc']);
  expect(families.with('0 abc', 0)).toEqual(['1 abc']);
  expect(families.on('0 abc', 0)?.base).toBe(families.on('1 abc', 0)?.base);
});

test('versions share their longest common beginning, and others join it', () => {
  expect(joined('abcd', 'abce', 'abcf').shared()).toEqual(['abc', 'abc', 'abc']);
});

test('a function that has less in common shares nothing, unless all together save more with less', () => {
  expect(joined('abcd', 'abce', 'axyz').shared()).toEqual(['abc', 'abc', '']);
  expect(joined('abcd', 'abce', 'abxy').shared()).toEqual(['ab', 'ab', 'ab']);
});

test('the functions that share other layers now are told of, and only those', () => {
  const families = new Families<string>();
  expect(families.set('v1', [layersOf('abcd')])).toEqual([]);
  expect(families.set('v2', [layersOf('abce')])).toEqual(['v1']);
  expect(families.set('v3', [layersOf('abcf')])).toEqual([]);
  expect(families.set('other', [layersOf('xyz')])).toEqual([]);
  expect(families.set('v2', [])).toEqual([]);
  expect(families.on('v2', 0)).toBeUndefined();
  expect(families.with('v1', 0)).toEqual(['v3']);
});

test('what is shared has the same name in another order, and on each GPU where it is the same', () => {
  const one = joined('abcd', 'abce').families.on('0 abcd', 0)?.base;
  expect(joined('abce', 'abcd').families.on('0 abce', 0)?.base).toBe(one);
  const families = new Families<string>();
  for (const name of ['abcd', 'abce']) families.set(name, [layersOf(name), undefined, layersOf(name)]);
  expect([0, 1, 2].map((gpu) => families.on('abcd', gpu)?.base)).toEqual([one, undefined, one]);
});

test('layers that are executed from host memory are shared behind those that are loaded, by plans that agree', () => {
  const families = new Families<string>();
  families.set('one', [layersOf('abcd', 2)]);
  families.set('two', [layersOf('abce', 2)]);
  families.set('other', [layersOf('abcf', 1)]);
  expect(families.on('one', 0)).toMatchObject({ loaded: [0, 1] });
  expect(families.on('two', 0)?.layers.at(-1)?.id).toBe('abc');
  expect(families.on('other', 0)).toBeUndefined();
});
