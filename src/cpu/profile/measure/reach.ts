/** Which batches a measurement covers, and whether an existing one covers the batches that are needed now. */
import type { TensorSpec } from '../../../onnx/index.ts';
import type { CpuProfile } from '../predict/index.ts';
import { declaredRows } from '../../../rows/index.ts';

/** The powers of two up to `batchMax`. With a fixed batch only that one; without a batch a single row. */
export function batchesOf(inputs: readonly TensorSpec[], batchMax: number): number[] {
  const dimension = declaredRows({ inputs });
  if (dimension.kind === 'open') return powersOfTwo(batchMax);
  return [dimension.kind === 'fixed' ? dimension.rows : 1];
}

/** Whether the profile was measured to its end, with every batch for its model. */
export function reaches({ pool, ended }: CpuProfile, inputs: readonly TensorSpec[], batchMax: number): boolean {
  if (ended === 'interrupted') return false;
  return batchesOf(inputs, batchMax).every((batch) => pool.batches.includes(batch));
}

export function powersOfTwo(most: number): number[] {
  const powers: number[] = [];
  for (let power = 1; power <= most; power *= 2) powers.push(power);
  return powers;
}
