import { expect, test } from 'vitest';
import { named, type FunctionId, type Given, type GpuId, type InvocationId, type PlaceId } from './index.ts';

test('the number of one thing does not pass for that of another, nor a plain number for any', () => {
  const [gpu, fn, invocation]: [GpuId, FunctionId, InvocationId] = [named(1), named(2), named(3)];
  // @ts-expect-error: a function is no GPU
  const wrongGpu: GpuId = fn;
  // @ts-expect-error: an invocation is no function
  const wrongFunction: FunctionId = invocation;
  // @ts-expect-error: a function is no place
  const wrongPlace: PlaceId = fn;
  // @ts-expect-error: a plain number is no GPU
  const plainGpu: GpuId = 4;
  const place: PlaceId = gpu;
  expect([wrongGpu, wrongFunction, wrongPlace, plainGpu, place]).toEqual([2, 3, 2, 4, 1]);
});

test('where the scheduler is told, a plain number passes, and the number of another thing does not', () => {
  const fn: FunctionId = named(2);
  const given: Given<FunctionId>[] = [5, fn];
  // @ts-expect-error: a function is no GPU
  const wrongGpu: Given<GpuId> = fn;
  expect([...given, wrongGpu]).toEqual([5, 2, 2]);
});
