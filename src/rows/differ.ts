/** Whether two answers for the same rows differ by more than the arithmetic of another number of rows explains. */
import { elementDifference, type DataType, type Tensor } from '../tensor/index.ts';

/** The largest difference that still agrees, relative to the largest magnitude of the row: four units in the last place
 * of half precision. Other types must be equal. */
const tolerances: Partial<Record<DataType, number>> = { FP64: 1e-6, FP32: 1e-3, FP16: 2 ** -8, BF16: 2 ** -5 };
/** For runs of one size, in which a row is computed by the same instructions whatever the others hold. */
const sameSizeTolerance = 2 ** -20;

export interface RowDifference {
  readonly output: string;
  /** In words: 'element 3 of [1,4] is 0.5, and 0.25 alone'. */
  readonly why: string;
}

/**
 * The first output in which `actual` differs from `expected`. Both hold the same rows. NaN and infinities must be in the
 * same places.
 *
 * @param found where: `alone`, or `beside others` in a run of as many rows
 */
export function rowDifference(
  actual: readonly Tensor[],
  expected: readonly Tensor[],
  found: 'alone' | 'beside others',
): RowDifference | undefined {
  for (const [place, wanted] of expected.entries()) {
    const got = actual[place];
    const { name: output, shape } = wanted;
    if (got?.shape.join() !== shape.join()) {
      return { output, why: `its shape is [${got?.shape.join(',') ?? ''}], and [${shape.join(',')}] ${found}` };
    }
    if (Buffer.compare(got.data, wanted.data) === 0) continue;
    const tolerance = found === 'beside others' ? sameSizeTolerance : (tolerances[wanted.datatype] ?? 0);
    const difference = elementDifference(got, wanted, tolerance);
    if (difference === undefined) continue;
    const { index, actual: one, expected: other } = difference;
    if (index === undefined) return { output, why: 'its texts differ' };
    return { output, why: `element ${index} of [${shape.join(',')}] is ${one}, and ${other} ${found}` };
  }
  return undefined;
}
