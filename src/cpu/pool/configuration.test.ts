import { expect, it } from 'vitest';
import { coresIn } from '../../schedule/index.ts';
import { instancesOf, sameConfiguration, scalesInPlace } from './configuration.ts';
import type { PoolConfiguration } from '../types.ts';

const list = (...groups: [number, number, number][]): PoolConfiguration => ({
  groups: groups.map(([instances, threads, batch]) => ({ instances, threads, batch })),
});

it('a configuration is known by its instances, however they are grouped', () => {
  const configuration = list([2, 1, 4], [1, 4, 16]);
  expect(coresIn(configuration)).toBe(6);
  expect(instancesOf(configuration)).toEqual([
    { threads: 4, batch: 16 },
    { threads: 1, batch: 4 },
    { threads: 1, batch: 4 },
  ]);
  expect(sameConfiguration(configuration, list([1, 1, 4], [1, 4, 16], [1, 1, 4]))).toBe(true);
  expect(sameConfiguration(configuration, { ...configuration, batchTimeoutMs: 5 })).toBe(false);
});

it('a change is made in place exactly where instances are only added or only dropped', () => {
  expect(scalesInPlace(list([2, 1, 4]), list([4, 1, 4]))).toBe(true);
  expect(scalesInPlace(list([2, 1, 4]), list([1, 1, 8]))).toBe(true);
  expect(scalesInPlace(list([2, 1, 4]), list([2, 1, 8]))).toBe(true);
  expect(scalesInPlace(list([1, 4, 16]), list([1, 4, 16], [2, 1, 2]))).toBe(true);
  expect(scalesInPlace(list([2, 1, 4]), list([1, 2, 8]))).toBe(false);
  expect(scalesInPlace(list([2, 1, 4], [1, 2, 8]), list([4, 1, 4]))).toBe(false);
});
