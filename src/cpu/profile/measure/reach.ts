/** Which batches a measurement covers, and whether one that was made covers those that are asked for now. */
import type { TensorSpec } from '../../../onnx/index.ts';
import type { CpuProfile } from '../predict/index.ts';
import { batchDimension } from './inputs.ts';

/**
 * The powers of two up to `batchMax`; of a model whose batch is fixed that one, and of one without a batch a single
 * row.
 */
export function batchesOf(inputs: readonly TensorSpec[], batchMax: number): number[] {
  const dimension = batchDimension(inputs);
  if (dimension.kind === 'open') return powersOfTwo(batchMax);
  return [dimension.kind === 'fixed' ? dimension.rows : 1];
}

/** Whether the profile was to have every batch that its model would be measured with, and service times. */
export function reaches({ pool, service }: CpuProfile, inputs: readonly TensorSpec[], batchMax: number): boolean {
  if (service.configurations.length === 0) return false;
  return batchesOf(inputs, batchMax).every((batch) => pool.batches.includes(batch));
}

export function powersOfTwo(most: number): number[] {
  const powers: number[] = [];
  for (let power = 1; power <= most; power *= 2) powers.push(power);
  return powers;
}
