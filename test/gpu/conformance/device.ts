/**
 * The device of the conformance tests: the emulated driver, or with TURNTABLE_TEST_GPU=1 this machine's first GPU.
 * Cases and comparisons are the same.
 */
import { openCuda } from '../../../src/gpu/driver/open.ts';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';

export const onRealGpu = process.env['TURNTABLE_TEST_GPU'] === '1';

/** No GPU was requested, and none can be emulated. */
export const deviceMissing = !onRealGpu && emulatorMissing;

export async function withDevice<Result>(work: (cuda: Cuda) => Promise<Result>): Promise<Result> {
  if (!onRealGpu) return withEmulatedCuda({}, work);
  const cuda = openCuda();
  try {
    return await work(cuda);
  } finally {
    cuda.release();
  }
}
