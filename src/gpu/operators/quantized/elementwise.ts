/**
 * ONNX Runtime's operators on 8-bit tensors (com.microsoft.QLinear...): dequantise, compute, quantise. Sums and products
 * are one expression over all inputs; the others are made of the float operator and the conversions.
 */
import { typedEntries } from '../../../tools/index.ts';
import { emitNothing } from '../elementwise/expressions.ts';
import {
  composed,
  type Emitter,
  type KernelName,
  type Kernels,
  type Operator,
  type Term,
  Unsupported,
  type Writer,
} from '../types.ts';
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

/** Floats of the 8-bit tensor at `place`, whose scale and zero point follow it. */
const real = (writer: Writer, place: number): Term =>
  writer.map('DequantizeLinear', [writer.required(place), writer.required(place + 1), writer.input(place + 2)], 'FP32');

/** Quantizes the result by the scale and zero point from `place` on. */
function giveWhole(writer: Writer, result: Term, place: number): void {
  const { datatype } = writer.output;
  writer.give(writer.map('QuantizeLinear', [result, writer.required(place), writer.input(place + 1)], datatype));
}

/** An operator of floats between a conversion of its input and one of its result. */
const around = <const Type extends KernelName>(type: Type, inner: KernelName): Operator<Type> =>
  composed(type, (writer) => {
    if (writer.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
    const floats = { datatype: 'FP32', shape: writer.output.shape } as const;
    giveWhole(writer, writer.made(inner, [real(writer, 0)], floats, 'own'), 3);
  });

const where = composed('com.microsoft.QLinearWhere', (writer) =>
  giveWhole(writer, writer.map('Where', [writer.required(0), real(writer, 1), real(writer, 4)], 'FP32'), 7),
);

/** Inputs: the scale and zero point of Y; then for each part X, its scale and zero point. */
const concat = composed('com.microsoft.QLinearConcat', (writer) => {
  const parts: Term[] = [];
  for (let place = 2; writer.input(place) !== undefined; place += 3) parts.push(real(writer, place));
  const floats = { datatype: 'FP32', shape: writer.output.shape } as const;
  giveWhole(writer, writer.made('Concat', parts, floats, 'own'), 0);
});

export const quantizedElementwiseOperators = [
  ...typedEntries<keyof typeof expressions, Expression>(expressions).map(([name, elementwise]) => ({
    type: `com.microsoft.${name}` as const,
    elementwise,
    emit: emitNothing,
  })),
  around('com.microsoft.QLinearSigmoid', 'Sigmoid'),
  around('com.microsoft.QLinearLeakyRelu', 'LeakyRelu'),
  around('com.microsoft.QLinearAveragePool', 'AveragePool'),
  around('com.microsoft.QLinearGlobalAveragePool', 'GlobalAveragePool'),
  around('com.microsoft.QLinearSoftmax', 'Softmax'),
  where,
  concat,
] as const satisfies readonly Kernels[];
