/**
 * ONNX Runtime's operators on 8-bit tensors (com.microsoft.QLinear...): dequantise, compute, quantise. Elementwise ones
 * are one expression over all inputs; the others run the float operator on dequantised tensors.
 */
import { typedEntries } from '../../../tools/index.ts';
import { derived, operatorOf, scratchValue } from '../common/derived.ts';
import { product } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { emitNothing } from '../elementwise/expressions.ts';
import { joiningOperators } from '../movement/joining.ts';
import { poolingOperators } from '../pooling/index.ts';
import { softmaxOperators } from '../normalization/softmax.ts';
import { type Emitter, type KernelName, type Kernels, type Operator, Unsupported, type Value } from '../types.ts';
import { narrowed } from './products.ts';
import { forEachElement, written } from '../common/elements.ts';

const real = (x: string, scale: string, zero: string): string =>
  `((float)((int)${x} - ${zero === '' ? '0' : `(int)${zero}`}) * ${scale})`;

const whole = (emitter: Emitter, x: string, scale: string, zero: string): string =>
  narrowed(emitter, `rintf(${x} / ${scale})${zero === '' ? '' : ` + (float)${zero}`}`);

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

const unary =
  (make: (x: string, emitter: Emitter) => string): Expression =>
  (emitter, [x = '', xScale = '', xZero = '', scale = '', zero = '']) =>
    whole(emitter, make(real(x, xScale, xZero), emitter), scale, zero);

const expressions = {
  QLinearAdd: add,
  QLinearMul: multiply,
  QLinearSigmoid: unary((x) => `(1.0f / (1.0f + expf(-${x})))`),
  QLinearLeakyRelu: unary((x, emitter) => `(${x} * (${x} < 0 ? (float)${emitter.attribute('alpha', 0.01)} : 1.0f))`),
  QLinearWhere: (
    emitter,
    [condition = '', x = '', xScale = '', xZero = '', y = '', yScale = '', yZero = '', scale = '', zero = ''],
  ) => whole(emitter, `(${condition} ? ${real(x, xScale, xZero)} : ${real(y, yScale, yZero)})`, scale, zero),
} satisfies Readonly<Record<string, Expression>>;

/** Dequantises an 8-bit tensor to floats, in scratch memory. */
function dequantize(emitter: Emitter, value: Value, scale: Value, zero: Value | undefined): Value {
  const to = scratchValue(emitter, 'FP32', value.shape);
  forEachElement(emitter, 'dequantize', value.elements, { input: value, scale, zero, output: written(to) }, (of) =>
    of.output.set('i', real(of.input.at('i'), of.scale.at('0'), of.zero?.at('0') ?? '')),
  );
  return to;
}

function quantize(emitter: Emitter, from: Value, scale: Value, zero: Value | undefined): void {
  const output = requiredOutput(emitter);
  forEachElement(emitter, 'quantize', output.elements, { input: from, scale, zero, output: written(output) }, (of) =>
    of.output.set('i', whole(emitter, of.input.at('i'), of.scale.at('0'), of.zero?.at('0') ?? '')),
  );
}

/**
 * An operator with the inputs X, its scale and zero point, the scale and zero point of Y. It runs `inner` on floats.
 */
const around = <Type extends KernelName>(type: Type, inner: Operator): Operator<Type> => ({
  type,
  emit(emitter) {
    if (emitter.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
    const output = requiredOutput(emitter);
    if (output.elements === 0) return;
    const x = dequantize(emitter, emitter.required(0), emitter.required(1), emitter.input(2));
    const y = scratchValue(emitter, 'FP32', output.shape);
    inner.emit(derived(emitter, { inputs: [x], outputs: [y] }));
    quantize(emitter, y, emitter.required(3), emitter.input(4));
  },
});

/** Inputs: the scale and zero point of Y; then for each part X, its scale and zero point. */
const concat = {
  type: 'com.microsoft.QLinearConcat',
  emit(emitter) {
    const output = requiredOutput(emitter);
    const parts: Value[] = [];
    for (let place = 2; emitter.input(place) !== undefined; place += 3) {
      parts.push(dequantize(emitter, emitter.required(place), emitter.required(place + 1), emitter.input(place + 2)));
    }
    const y = scratchValue(emitter, 'FP32', output.shape);
    const inner = derived(emitter, { inputs: parts, outputs: [y] });
    // Concat counts the inputs of its node.
    const node = { ...emitter.node, proto: { ...emitter.node.proto, input: parts.map((_, index) => String(index)) } };
    if (product(output.shape) === 0) return;
    operatorOf(joiningOperators, 'Concat').emit({ ...inner, node });
    quantize(emitter, y, emitter.required(0), emitter.input(1));
  },
} satisfies Kernels;

export const quantizedElementwiseOperators = [
  ...typedEntries<keyof typeof expressions, Expression>(expressions).map(([name, expression]) => ({
    type: `com.microsoft.${name}` as const,
    elementwise: expression,
    emit: emitNothing,
  })),
  around('com.microsoft.QLinearAveragePool', operatorOf(poolingOperators, 'AveragePool')),
  around('com.microsoft.QLinearGlobalAveragePool', operatorOf(poolingOperators, 'GlobalAveragePool')),
  around('com.microsoft.QLinearSoftmax', operatorOf(softmaxOperators, 'Softmax')),
  concat,
] as const satisfies readonly Kernels[];
