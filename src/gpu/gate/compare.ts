/**
 * Compares a GPU's answer with ONNX Runtime's: names, types, shapes, and values within the tolerance of the precision.
 */
import { elementDifference, nearest, relativeDifference, type DataType, type Tensor } from '../../tensor/index.ts';
import type { WeightLayout } from '../program/types.ts';

/**
 * The coarsest number format in a model. `tf32`: products with 10 bits of mantissa. `int8`: quantised, where rounding
 * the other way moves a value by a whole step.
 */
export type Precision = 'fp64' | 'fp32' | 'tf32' | 'fp16' | 'bf16' | 'int8';

/** The largest difference that still agrees, relative to the largest magnitude of the expected output. */
export const tolerances: Readonly<Record<Precision, number>> = {
  fp64: 1e-6,
  fp32: 1e-3,
  tf32: 1e-2,
  fp16: 2e-2,
  bf16: 5e-2,
  int8: 5e-2,
};

/**
 * Differences up to this prove nothing. What ONNX Runtime approximates near 1 has such errors: its logistic function of
 * -18 is 8.9e-8, and should be 1.5e-8; that of -16.4 is 2.1e-7, and should be 7.3e-8.
 */
const noiseOf = (precision: Precision): number => (precision === 'fp64' ? 2 ** -51 : 2 ** -22);

const ofType: Partial<Record<DataType, Precision>> = {
  INT8: 'int8',
  UINT8: 'int8',
  BF16: 'bf16',
  FP16: 'fp16',
  FP32: 'fp32',
  FP64: 'fp64',
};
const coarsestFirst: readonly Precision[] = ['int8', 'bf16', 'fp16', 'tf32', 'fp32', 'fp64'];

/** The coarsest type among a model's weights, inputs and outputs. */
export function precisionOf(
  { weights }: Pick<WeightLayout, 'weights'>,
  tensors: readonly Pick<Tensor, 'datatype'>[],
  tf32: boolean,
): Precision {
  const found = new Set<Precision | undefined>(weights.map(({ datatype }) => ofType[datatype]));
  // Input bytes may be pixels, which say nothing about quantisation.
  for (const { datatype } of tensors) if (ofType[datatype] !== 'int8') found.add(ofType[datatype]);
  if (tf32) found.add('tf32');
  return coarsestFirst.find((precision) => found.has(precision)) ?? 'fp32';
}

export interface Disagreement {
  readonly output: string;
  /** In words: 'element 3 is 0.5, not 0.25'. */
  readonly why: string;
  /** The output is so small that its differences may come from either side. Other inputs can tell. */
  readonly isFaint: boolean;
}

const described = ({ datatype, shape }: Tensor): string => `${datatype} [${shape.join(',')}]`;

/**
 * The first output that differs, one that is not faint before one that is; undefined if all agree. NaN and infinities
 * must be in the same places.
 */
export function disagreementOf(
  actual: readonly Tensor[],
  expected: readonly Tensor[],
  precision: Precision,
): Disagreement | undefined {
  const found = new Map(actual.map((tensor) => [tensor.name, tensor]));
  let faint: Disagreement | undefined;
  for (const wanted of expected) {
    const disagreement = differenceOf(found.get(wanted.name), wanted, precision);
    if (disagreement?.isFaint === false) return disagreement;
    faint ??= disagreement;
  }
  return faint;
}

/**
 * As {@link disagreementOf}, where each element may be that of either of two right answers. Outputs whose shapes differ
 * are those of one of them.
 */
export function disagreementOfBoth(
  actual: readonly Tensor[],
  one: readonly Tensor[],
  other: readonly Tensor[],
  precision: Precision,
): Disagreement | undefined {
  const expected = one.map((wanted) => {
    const found = actual.find(({ name }) => name === wanted.name);
    const second = other.find(({ name }) => name === wanted.name);
    if (found === undefined || second === undefined) return wanted;
    if (described(second) !== described(wanted)) return described(found) === described(second) ? second : wanted;
    return described(found) === described(wanted) ? nearest(found, wanted, second) : wanted;
  });
  return disagreementOf(actual, expected, precision);
}

/** The largest difference between outputs that agree, relative to the largest magnitude of each. */
export function largestDifference(actual: readonly Tensor[], expected: readonly Tensor[]): number {
  const found = new Map(actual.map((output) => [output.name, output]));
  return expected.reduce((most, wanted) => Math.max(most, relativeDifference(found.get(wanted.name)!, wanted)), 0);
}

function differenceOf(actual: Tensor | undefined, expected: Tensor, precision: Precision): Disagreement | undefined {
  const { name: output, shape } = expected;
  const differs = (why: string, isFaint = false): Disagreement => ({ output, why, isFaint });
  if (actual === undefined) return differs('the GPU does not give it');
  if (described(actual) !== described(expected))
    return differs(`it is ${described(actual)} on the GPU, and ${described(expected)} in ONNX Runtime`);
  const found = elementDifference(actual, expected, tolerances[precision]);
  if (found === undefined) return undefined;
  const { index, bound } = found;
  if (index === undefined) return differs('its texts differ');
  const both = `element ${index} of [${shape.join(',')}] is ${found.actual} on the GPU and ${found.expected} in ONNX Runtime`;
  if (bound === undefined) return differs(both);
  if (Math.abs(Number(found.actual) - Number(found.expected)) <= noiseOf(precision))
    return differs(`${both}, which is too little to tell a wrong answer by`, true);
  return differs(`${both}, and the tolerance is ${bound.toPrecision(3)}`);
}
