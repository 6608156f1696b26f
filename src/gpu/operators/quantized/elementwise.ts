/** Sums and products of 8-bit tensors: one expression over all inputs. */
import { typedEntries } from '../../../tools/index.ts';
import { emitNothing } from '../elementwise/expressed.ts';
import type { Emitter } from '../types.ts';
import { narrowed } from './products.ts';

type Expression = (emitter: Emitter, inputs: readonly string[]) => string;

const float = (text: string): string => (text === '' ? '0.0f' : `(float)${text}`);

/**
 * In ONNX Runtime's order, so that halves are rounded in the same way: both zero points are one addend, computed from
 * quotients of scales.
 */
const add: Expression = (
  emitter,
  [a = '', aScale = '', aZero = '', b = '', bScale = '', bZero = '', scale = '', zero = ''],
) => {
  const [left, right] = [`(${aScale} / ${scale})`, `(${bScale} / ${scale})`];
  const fixed = `(${float(zero)} - (${left} * ${float(aZero)} + ${right} * ${float(bZero)}))`;
  return narrowed(emitter, `rintf(${left} * (float)${a} + (${right} * (float)${b} + ${fixed}))`);
};

const less = (x: string, by: string): string => `((int)${x} - ${by === '' ? '0' : `(int)${by}`})`;

const multiply: Expression = (
  emitter,
  [a = '', aScale = '', aZero = '', b = '', bScale = '', bZero = '', scale = '', zero = ''],
) => {
  const product = `(float)(${less(a, aZero)} * ${less(b, bZero)}) * (${aScale} * ${bScale} / ${scale})`;
  return narrowed(emitter, `rintf(${product}${zero === '' ? '' : ` + (float)${zero}`})`);
};

const expressions = { QLinearAdd: add, QLinearMul: multiply } as const;

export const quantizedElementwiseOperators = typedEntries<keyof typeof expressions, Expression>(expressions).map(
  ([name, elementwise]) => ({ type: `com.microsoft.${name}` as const, elementwise, emit: emitNothing }),
);
