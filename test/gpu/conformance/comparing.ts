/** Compares a device's result with ONNX Runtime's. */
import type { DataType, Tensor } from '../../../src/tensor/index.ts';
import type { Case } from '../../support/operator-cases/case.ts';
import { numbersIn } from './reference.ts';

/** Relative to the largest magnitude: rounding of the datatype, and sums in another order. */
const tolerances: Partial<Record<DataType, number>> = { FP64: 1e-6, FP32: 2e-5, FP16: 2e-3, BF16: 1.6e-2 };

/** The difference as a sentence; undefined if they agree. Integers, NaN and infinities must be equal. */
export function difference(one: Case, actual: Tensor, expected: Tensor): string | undefined {
  const [found, wanted] = [numbersIn(actual), numbersIn(expected)];
  const tolerance = one.tolerance ?? tolerances[expected.datatype] ?? 0;
  const largest = wanted.reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0);
  const bound = tolerance * largest;
  for (const [index, value] of wanted.entries()) {
    const got = found[index]!;
    if (Object.is(got, value) || got === value || Math.abs(got - value) <= bound) continue;
    return `element ${index} of [${expected.shape.join(',')}] is ${got}, not ${value}`;
  }
  return undefined;
}
