import { expect, test } from 'vitest';
import type { FunctionId, GpuId, InvocationId, PlaceId } from './index.ts';

test('the number of one thing does not pass for that of another, and a plain number passes for each', () => {
  const [gpu, fn, invocation]: [GpuId, FunctionId, InvocationId] = [1, 2, 3];
  // @ts-expect-error: a function is no GPU
  const wrongGpu: GpuId = fn;
  // @ts-expect-error: an invocation is no function
  const wrongFunction: FunctionId = invocation;
  // @ts-expect-error: a function is no place
  const wrongPlace: PlaceId = fn;
  const place: PlaceId = gpu;
  expect([wrongGpu, wrongFunction, wrongPlace, place]).toEqual([2, 3, 2, 1]);
});
