import { expect, test } from 'vitest';
import { checkMatmul, driverError } from './status.ts';
import { CudaError } from './types.ts';

const kindOf = (status: number): string => driverError('cuStreamSynchronize', status, 'NAME').code;

test('the statuses for a poisoned context and for a lost device are those of cuda.h', () => {
  // ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED, ASSERT, 714 to 719, CONTAINED, TENSOR_MEMORY_LEAK,
  // MPS_CLIENT_TERMINATED, EXTERNAL_DEVICE
  const poisoned = [226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911];
  const all = Array.from({ length: 1000 }, (_, status) => status);
  expect(all.filter((status) => kindOf(status) === 'poisoned')).toEqual(poisoned);
  expect(all.filter((status) => kindOf(status) === 'device-lost')).toEqual([46, 214, 220, 999]);
});

function failureOf(status: number, contextError?: CudaError): CudaError {
  try {
    checkMatmul('cublasLtMatmul', status, () => contextError, 'f32[1,2,3]');
  } catch (error) {
    if (error instanceof CudaError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

test.each([13, 14])('after status %i of cuBLAS the driver is asked whether the context is poisoned', (status) => {
  expect(failureOf(status)).toMatchObject({ code: 'unsupported', call: 'cublasLtMatmul', status });
  const poisoned = driverError('cuMemGetInfo_v2', 700, 'CUDA_ERROR_ILLEGAL_ADDRESS');
  expect(failureOf(status, poisoned)).toBe(poisoned);
  expect(failureOf(status, driverError('cuMemGetInfo_v2', 2, 'CUDA_ERROR_OUT_OF_MEMORY')).code).toBe('unsupported');
});
