import { expect, test } from 'vitest';
import { KnownShapes } from './known-shapes.ts';
import { shaped } from '../../../test/support/shapes.ts';
import { shapeIn, type InputShapes } from '../../gpu/index.ts';

const room = 16;
const shape = (length: number) => shaped({ ids: [1, length] });

/** Like the host, but a program is there at once. @returns the programs that were made */
function call(known: KnownShapes, lengths: Iterable<number>): number {
  let made = 0;
  for (const length of lengths) {
    known.called(shape(length));
    const wanted = known.wants(shape(length));
    if (wanted === undefined) continue;
    known.preparing(shape(length), wanted);
    known.ready(shape(length), wanted.program);
    made++;
  }
  return made;
}

const served = (known: KnownShapes, lengths: readonly number[]): number[] =>
  lengths.filter((length) => known.whyNot(shape(length)) === undefined);

const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

test('shapes get a program at their first call while there is room', () => {
  const known = new KnownShapes({ own: shape(128) });
  expect(call(known, upTo(room))).toBe(room);
  expect(served(known, [...upTo(room), 128])).toEqual([...upTo(room), 128]);
});

test('callers that alternate between too many shapes cause no needless programs', () => {
  const known = new KnownShapes();
  call(known, upTo(room));
  const turns = Array.from({ length: 200 }, () => upTo(room + 9)).flat();
  expect(call(known, turns)).toBe(0);
  expect(served(known, upTo(room + 9))).toEqual(upTo(room));
  expect(known.whyNot(shape(room + 1))?.words).toMatch(/is not there: 16 other shapes are called more often$/);
});

test('a shape that is called often replaces the one that is called least', () => {
  const known = new KnownShapes();
  call(known, [...upTo(room), ...upTo(room - 1)]);
  expect(call(known, [99, 99, 99, 99])).toBe(1);
  expect(served(known, [...upTo(room), 99])).toEqual([...upTo(room - 1), 99]);
});

test('shapes that were called often once give way to those of now', () => {
  const known = new KnownShapes();
  for (let round = 0; round < 1000; round++) call(known, upTo(room));
  const later = upTo(room).map((length) => length + 100);
  for (let round = 0; round < 1000; round++) call(known, later);
  expect(served(known, later)).toEqual(later);
});

test('the program of the registration is never given up', () => {
  const known = new KnownShapes({ own: shape(128) });
  for (let round = 0; round < 100; round++) call(known, upTo(room + 5));
  expect(served(known, [128])).toEqual([128]);
});

const batch = (rows: number) => shaped({ ids: [rows, 16] });
const rowsOf = (shapes: InputShapes): number => shapeIn(shapes, 'ids')![0]!;
const toPowersOfTwo = (shapes: InputShapes) => batch(2 ** Math.ceil(Math.log2(rowsOf(shapes))));

/** @returns batch sizes of the programs that were made, in order */
function callBatches(known: KnownShapes, sizes: Iterable<number>): number[] {
  const made = new Set<number>();
  for (const rows of sizes) {
    known.called(batch(rows));
    const wanted = known.wants(batch(rows));
    if (wanted === undefined) continue;
    known.preparing(batch(rows), wanted);
    known.ready(batch(rows), wanted.program);
    made.add(rowsOf(wanted.program));
  }
  return [...made];
}

test('batches of 1 to 100 share eight programs, and all of them are served', () => {
  const known = new KnownShapes({ own: batch(1), classOf: toPowersOfTwo });
  expect(callBatches(known, upTo(100))).toEqual([1, 2, 4, 8, 16, 32, 64, 128].slice(1));
  expect(upTo(100).filter((rows) => known.whyNot(batch(rows)) !== undefined)).toEqual([]);
});

test('a model that combines rows has a program for each size', () => {
  const known = new KnownShapes({ own: batch(1), classOf: toPowersOfTwo });
  known.called(batch(3));
  expect(known.wants(batch(3))).toEqual({ program: batch(4) });
  known.preparing(batch(3), {});
  known.rowsMeet();
  expect(callBatches(known, [3, 5, 6, 7])).toEqual([3, 5, 6, 7]);
});

test('the size that most calls have gets a program of its own, once', () => {
  const known = new KnownShapes({ own: batch(1), classOf: toPowersOfTwo });
  expect(callBatches(known, Array<number>(255).fill(5))).toEqual([8]);
  expect(callBatches(known, Array<number>(1000).fill(5))).toEqual([5]);
  expect(callBatches(known, [6, 7])).toEqual([8]);
});

test('giving up a program gives up all sizes that ran in it', () => {
  const known = new KnownShapes({ classOf: toPowersOfTwo });
  callBatches(known, [5, 6, 7]);
  known.preparing(batch(16), { instead: batch(8) });
  expect([5, 6, 7].filter((rows) => known.whyNot(batch(rows)) === undefined)).toEqual([]);
});

test('comparisons that decide nothing become rare, and a decision makes the next shapes as eager as the first', () => {
  const known = new KnownShapes();
  const compared: number[] = [];
  for (let calls = 1; calls <= 5000; calls++) {
    known.called(shape(7));
    const wanted = known.wants(shape(7));
    if (wanted === undefined) continue;
    compared.push(calls);
    known.preparing(shape(7), wanted);
    known.undecided();
    known.dropped();
  }
  expect(compared.slice(0, 6)).toEqual([1, 2, 4, 8, 16, 32]);
  expect(compared.at(-1)).toBeGreaterThan(5000 - 1024);
  expect(compared.length).toBeLessThan(16);
  known.ready(shape(7), shape(7));
  expect(call(known, [8])).toBe(1);
});
