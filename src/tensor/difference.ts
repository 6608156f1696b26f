/** Whether two tensors hold the same values, within a tolerance. */
import { bf16ToNumber, fp16ToNumber } from './half.ts';
import { elementBytes, elements, type Tensor, type DataType } from './tensor.ts';

const floats: ReadonlySet<DataType> = new Set(['FP16', 'BF16', 'FP32', 'FP64']);
/** Quantized values between two steps may be rounded to either. */
const stepsOf: Partial<Record<DataType, number>> = { INT8: 1, UINT8: 1 };

export interface ElementDifference {
  /** The element that differs most; undefined for texts. */
  readonly index: number | undefined;
  readonly actual: number | bigint | undefined;
  readonly expected: number | bigint | undefined;
  /** Largest allowed difference; undefined for types that are not floats. */
  readonly bound: number | undefined;
}

/**
 * The element of `actual` that is farthest from `expected`, if it is farther than allowed. Both have the same datatype
 * and shape. NaN and infinities must be in the same places.
 * @param tolerance of floats, relative to the largest magnitude in `expected`
 */
export function elementDifference(actual: Tensor, expected: Tensor, tolerance: number): ElementDifference | undefined {
  if (expected.datatype === 'BYTES') {
    const isSame = Buffer.from(actual.data).equals(expected.data);
    return isSame ? undefined : { index: undefined, actual: undefined, expected: undefined, bound: undefined };
  }
  const [got, wanted] = [numbersOf(actual), numbersOf(expected)];
  const isFloat = floats.has(expected.datatype);
  const bound = isFloat ? tolerance * largestOf(wanted) : (stepsOf[expected.datatype] ?? 0);
  let worst = -1;
  let most = bound;
  for (let index = 0; index < wanted.length; index++) {
    const [a, b] = [got[index]!, wanted[index]!];
    if (a === b || Object.is(a, b)) continue;
    const difference = Math.abs(Number(a) - Number(b));
    if (difference <= most) continue;
    worst = index;
    // NaN on one side only: nothing can be worse.
    if (Number.isNaN(difference)) break;
    most = difference;
  }
  if (worst < 0) return undefined;
  return { index: worst, actual: got[worst], expected: wanted[worst], bound: isFloat ? bound : undefined };
}

/** The largest difference of floats, relative to the largest magnitude in `expected`; 0 for other types. */
export function relativeDifference(actual: Tensor, expected: Tensor): number {
  if (!floats.has(expected.datatype)) return 0;
  const [got, wanted] = [numbersOf(actual), numbersOf(expected)];
  let most = 0;
  for (let index = 0; index < wanted.length; index++) {
    const difference = Math.abs(Number(got[index]) - Number(wanted[index]));
    // Infinities that are equal, and NaN on both sides, give NaN.
    if (difference > most) most = difference;
  }
  return most === 0 ? 0 : most / largestOf(wanted);
}

/** For each element that of `one` or of `other`, whichever is nearer to `actual`. All have one datatype and shape. */
export function nearest(actual: Tensor, one: Tensor, other: Tensor): Tensor {
  if (one.datatype === 'BYTES') return one;
  const [from, first, second] = [numbersOf(actual), numbersOf(one), numbersOf(other)];
  const data = new Uint8Array(one.data);
  const size = elementBytes[one.datatype];
  for (let index = 0; index < first.length; index++) {
    const [a, b, c] = [Number(from[index]), Number(first[index]), Number(second[index])];
    if (a === b || Number.isNaN(c)) continue;
    const isSecond = a === c || Number.isNaN(b) || Math.abs(a - c) < Math.abs(a - b);
    if (isSecond) data.set(other.data.subarray(index * size, (index + 1) * size), index * size);
  }
  return { ...one, data };
}

function largestOf(values: Numbers): number {
  let largest = 0;
  for (const value of values) {
    const magnitude = Math.abs(Number(value));
    if (Number.isFinite(magnitude) && magnitude > largest) largest = magnitude;
  }
  return largest;
}

type Numbers = ArrayLike<number | bigint> & Iterable<number | bigint>;

/** The elements as numbers, those of half precision too. */
export function numbersOf(tensor: Tensor): Numbers {
  const values = elements(tensor) as Numbers;
  if (tensor.datatype === 'FP16') return Array.from(values, (bits) => fp16ToNumber(Number(bits)));
  if (tensor.datatype === 'BF16') return Array.from(values, (bits) => bf16ToNumber(Number(bits)));
  return values;
}
