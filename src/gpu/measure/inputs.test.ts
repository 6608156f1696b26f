import { describe, expect, test } from 'vitest';
import type { WeightLayout } from '../program/types.ts';
import { sampleInput } from './inputs.ts';

const layout: WeightLayout = {
  layers: [{ index: 0, name: 'words', kind: 'embedding', bytes: 4000 }],
  weights: [
    {
      name: 'words.weight',
      datatype: 'FP32',
      shape: [100, 10],
      bytes: 4000,
      layer: 0,
      byteOffset: 0,
      source: { path: '/none', byteOffset: 0 },
    },
  ],
  bytes: 4000,
};

const input = (name: string, shape: readonly number[]) => ({
  name,
  datatype: 'INT64' as const,
  shape,
  bytes: 8 * shape.reduce((product, size) => product * size, 1),
});
const inputs = [input('input_ids', [2, 26]), input('lengths', [2]), input('attention_mask', [2, 26])];
const numbersOf = (index: number): number[] =>
  Array.from(new BigInt64Array(sampleInput(layout, inputs[index]!, inputs).buffer), Number);

describe('sample inputs', () => {
  test('an input of indices names rows that the embedding table has, the same ones each time', () => {
    const ids = numbersOf(0);
    expect(ids).toHaveLength(52);
    expect(ids.every((id) => id >= 0 && id < 100)).toBe(true);
    expect(new Set(ids).size).toBeGreaterThan(10);
    expect(numbersOf(0)).toEqual(ids);
  });

  test('an input of lengths holds the length of the sequences, and a mask holds ones', () => {
    expect(numbersOf(1)).toEqual([26, 26]);
    expect(numbersOf(2).every((value) => value === 1)).toBe(true);
  });

  test('an input of lengths holds the size of the first axis where time is the first axis', () => {
    const timeFirst = [input('series', [5, 8, 3]), input('sequence_lens', [8])];
    const data = sampleInput(layout, timeFirst[1]!, timeFirst);
    expect(Array.from(new BigInt64Array(data.buffer), Number)).toEqual([5, 5, 5, 5, 5, 5, 5, 5]);
  });
});
