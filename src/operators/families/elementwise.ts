/** Operators whose result's elements each follow from the same elements of their (broadcast) inputs. */
import { attributeOf, dataTypeOf } from '../../onnx/index.ts';
import { always, each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';

const unary: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.broadcast,
};
const several: OperatorFacts = { ...unary, shapes: shapes.elementWise };
const jumping = { jumps: always };
const counting = { arithmetic: 'elements' } as const;

/** An operator of two inputs, whose small whole-number results are tracked, since shapes are computed with it. */
const tracked = (compute: (a: number, b: number) => number): OperatorFacts => ({
  ...several,
  shapes: shapes.arithmetic(compute),
});

const floats = new Set(['FP64', 'FP32', 'FP16', 'BF16']);

export const elementwise = {
  ...each('Abs Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh', unary),
  ...each('Celu Softplus Softsign Mish Gelu com.microsoft.Gelu com.microsoft.QuickGelu Swish', unary),
  ...each('com.microsoft.BiasGelu com.microsoft.FastGelu', unary),
  ...each('Not BitwiseNot IsNaN IsInf', unary),
  ...each('Neg', { ...unary, ...counting }),
  ...each('Sign Round ThresholdedRelu Shrink', { ...unary, ...jumping }),
  ...each('Floor Ceil', { ...unary, ...jumping, ...counting }),
  ...each('Relu LeakyRelu Elu Selu HardSigmoid HardSwish', { ...unary, leaf: 'activation' }),
  ...each('Clip', { ...unary, leaf: 'activation', weights: 'first' }),
  ...each('Tanh Sigmoid', { ...unary, leaf: 'activation-behind-weights' }),
  ...each('Cast', {
    ...unary,
    ...counting,
    shapes: shapes.same,
    keeps: 'elements',
    jumps: (node) => !floats.has(dataTypeOf(attributeOf(node, 'to', 1)) ?? ''),
  }),
  ...each('Pow Sum Mean And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitShift', several),
  ...each('Max Min', { ...several, ...counting }),
  ...each('Less Greater LessOrEqual GreaterOrEqual', { ...several, ...jumping }),
  ...each('PRelu', { ...several, leaf: 'activation' }),
  ...each('Where', { ...several, shapes: shapes.where }),
  Add: { ...tracked((a, b) => a + b), ...counting },
  Sub: { ...tracked((a, b) => a - b), ...counting },
  Mul: { ...tracked((a, b) => a * b), ...counting },
  Div: { ...tracked((a, b) => (b === 0 ? 0 : Math.trunc(a / b))), ...counting },
  Mod: { ...tracked((a, b) => (b === 0 ? 0 : a % b)), ...jumping },
  Equal: { ...tracked((a, b) => Number(a === b)), ...jumping },
};
