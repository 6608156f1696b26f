/** On quantized tensors: 8-bit products and convolutions, weights of few bits, and conversions from and to floats. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import { either, is, like, named } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import * as windows from '../shapes/window-rules.ts';
import { axisFromFront, ElementType } from '../../onnx/index.ts';
import { elementCount, type DataType } from '../../tensor/index.ts';
import { elementOf, floatLiteral } from '../element.ts';
import { Unsupported, type Expression, type Term, type Write, type Writer } from '../writing.ts';

const bytes: readonly DataType[] = ['INT8', 'UINT8'];

const byRun = { ...ordinary, shapes: 'run' } as const;
const unfollowed: OperatorFacts = { ...byRun, rows: 'unknown' };
const converting: OperatorFacts = {
  ...byRun,
  shapes: shapes.sameAsFirst,
  rows: rows.quantization,
  keeps: 'elements',
  mixesPrecisions: true,
};
const product: OperatorFacts = { ...byRun, rows: rows.matrixProduct(0, 1), layer: 'linear' };
const windowed: OperatorFacts = { ...byRun, rows: rows.alongFirst(0) };

const limits: Partial<Record<DataType, readonly [low: number, high: number]>> = {
  INT8: [-128, 127],
  UINT8: [0, 255],
  INT16: [-32_768, 32_767],
  UINT16: [0, 65_535],
};

/** C expression that saturates a rounded float to the type of the node's result. */
function saturated(node: Parameters<Expression>[0], text: string): string {
  const datatype = node.output(0)?.datatype ?? 'UINT8';
  const range = limits[datatype];
  if (range === undefined) throw new Unsupported(`numbers are not quantised to ${datatype}`);
  const [low, high] = range.map((limit) => floatLiteral(limit));
  return `(${elementOf(datatype).stored})fminf(fmaxf(${text}, ${low}), ${high})`;
}

/** x, scale and perhaps a zero point, which broadcast. Rounds halves to even. */
export const quantize: Expression = (node, [x = '', scale = '', zero = '']) =>
  saturated(node, `rintf((float)${x} / (float)${scale})${zero === '' ? '' : ` + (float)${zero}`}`);

export const dequantize: Expression = (node, [x = '', scale = '', zero = '']) => {
  const { datatype } = node.required(0);
  if (limits[datatype] === undefined && datatype !== 'INT32')
    throw new Unsupported(`numbers are not dequantised from ${datatype}`);
  return zero === '' ? `((float)${x} * (float)${scale})` : `((float)((int)${x} - (int)${zero}) * (float)${scale})`;
};

const float = (text: string): string => (text === '' ? '0.0f' : `(float)${text}`);

/**
 * In ONNX Runtime's order, so that halves are rounded in the same way: both zero points are one addend, computed from
 * quotients of scales.
 */
const add: Expression = (
  node,
  [a = '', aScale = '', aZero = '', b = '', bScale = '', bZero = '', scale = '', zero = ''],
) => {
  const [left, right] = [`(${aScale} / ${scale})`, `(${bScale} / ${scale})`];
  const fixed = `(${float(zero)} - (${left} * ${float(aZero)} + ${right} * ${float(bZero)}))`;
  return saturated(node, `rintf(${left} * (float)${a} + (${right} * (float)${b} + ${fixed}))`);
};

const less = (x: string, by: string): string => `((int)${x} - ${by === '' ? '0' : `(int)${by}`})`;

const multiply: Expression = (
  node,
  [a = '', aScale = '', aZero = '', b = '', bScale = '', bZero = '', scale = '', zero = ''],
) => {
  const product = `(float)(${less(a, aZero)} * ${less(b, bZero)}) * (${aScale} * ${bScale} / ${scale})`;
  return saturated(node, `rintf(${product}${zero === '' ? '' : ` + (float)${zero}`})`);
};

/** Scales or zero points so that they broadcast to x: one, one for each index of an axis, or one for each block of it. */
function broadcastTo(writer: Writer, x: Term, scales: Term): Term {
  const { shape } = scales;
  if (shape.length <= 1 && elementCount(shape) === 1) return scales;
  const axis = axisFromFront(writer.attribute('axis', 1), x.shape.length);
  const size = x.shape[axis];
  const doNotFit = new Unsupported(`its scales [${shape.join(',')}] do not fit [${x.shape.join(',')}]`);
  if (shape.length === 1) {
    if (shape[0] !== size) throw doNotFit;
    return writer.viewed(
      scales,
      x.shape.map((_, place) => (place === axis ? shape[0]! : 1)),
    );
  }
  const block = writer.attribute('block_size', 0);
  if (shape.length !== x.shape.length || block < 1 || size === undefined) throw doNotFit;
  const [before, blocks, behind] = [shape.slice(0, axis), shape[axis]!, shape.slice(axis + 1)];
  const apart = writer.viewed(scales, [...before, blocks, 1, ...behind]);
  const whole = writer.viewed(
    writer.repeated(apart, [...before, blocks, block, ...behind]),
    shape.with(axis, blocks * block),
  );
  if (blocks * block === size) return whole;
  const cut = { starts: [0], ends: [size], axes: [axis] };
  return writer.made('Slice', [whole], { ...whole, shape: shape.with(axis, size) }, cut);
}

const linear =
  (type: string): Write =>
  (writer) => {
    const x = writer.required(0);
    const zero = writer.input(2);
    const scales = [writer.required(1), ...(zero === undefined ? [] : [zero])];
    const inputs = [x, ...scales.map((each) => broadcastTo(writer, x, each))];
    writer.give(writer.map(type, inputs, writer.output.datatype));
  };

/** Floats of the 8-bit tensor at `place`, whose scale and zero point follow it. */
const real = (writer: Writer, place: number): Term =>
  writer.map('DequantizeLinear', [writer.required(place), writer.required(place + 1), writer.input(place + 2)], 'FP32');

/** Quantizes the result by the scale and zero point from `place` on. */
function giveWhole(writer: Writer, result: Term, place: number): void {
  const { datatype } = writer.output;
  writer.give(writer.map('QuantizeLinear', [result, writer.required(place), writer.input(place + 1)], datatype));
}

/** An operator of floats between a conversion of its input and one of its result. */
const around =
  (inner: string): Write =>
  (writer) => {
    if (writer.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
    const floats = { datatype: 'FP32', shape: writer.output.shape } as const;
    giveWhole(writer, writer.made(inner, [real(writer, 0)], floats, 'own'), 3);
  };

const where: Write = (writer) =>
  giveWhole(writer, writer.map('Where', [writer.required(0), real(writer, 1), real(writer, 4)], 'FP32'), 7);

/** Inputs: the scale and zero point of Y; then for each part X, its scale and zero point. */
const concat: Write = (writer) => {
  const parts: Term[] = [];
  for (let place = 2; writer.input(place) !== undefined; place += 3) parts.push(real(writer, place));
  const floats = { datatype: 'FP32', shape: writer.output.shape } as const;
  giveWhole(writer, writer.made('Concat', parts, floats, 'own'), 0);
};

/** Scales of rows or channels, one for each index of an axis that `behind` others follow. */
const along = (writer: Writer, term: Term, behind: number): Term =>
  elementCount(term.shape) === 1
    ? term
    : writer.viewed(term, [...term.shape, ...Array.from({ length: behind }, () => 1)]);

const floatsOf = (writer: Writer, whole: Term, scale: Term): Term =>
  writer.map('Mul', [writer.cast(whole, 'FP32'), scale]);

/** Sums times `scale`, as floats or, by the scale and zero point from `place` on, as 8 bits. */
function giveScaled(writer: Writer, sums: Term, scale: Term, place: number): void {
  const quantum = writer.input(place);
  if (quantum === undefined) return writer.give(floatsOf(writer, sums, scale));
  const floats = floatsOf(writer, sums, writer.map('Div', [scale, quantum]));
  const inputs = [floats, writer.number('FP32', 1), writer.input(place + 1)];
  writer.give(writer.map('QuantizeLinear', inputs, writer.output.datatype));
}

const sumsOf = (writer: Writer, factors: readonly Term[], zeros: readonly (Term | undefined)[]): Term =>
  writer.made('MatMulInteger', [...factors, ...zeros], { datatype: 'INT32', shape: writer.output.shape });

const qlinearMatmul: Write = (writer) => {
  const factors = [writer.required(0, bytes), writer.required(3, bytes)];
  const scale = writer.map('Mul', [along(writer, writer.required(1), 1), writer.required(4)]);
  giveScaled(writer, sumsOf(writer, factors, [writer.input(2), writer.input(5)]), scale, 6);
};

/** A x B + C as floats, or as 8 bits if there is a scale for the output. */
const qgemm: Write = (writer) => {
  const factor = (place: number, transposed: string): Term =>
    writer.permuted(writer.required(place, bytes), writer.attribute(transposed, 0) === 0 ? [0, 1] : [1, 0]);
  const factors = [factor(0, 'transA'), factor(3, 'transB')];
  const product = sumsOf(writer, factors, [writer.input(2), writer.input(5)]);
  const addend = writer.input(6);
  const alpha = writer.number('FP32', writer.attribute('alpha', 1));
  const scale = writer.map('Mul', [writer.map('Mul', [alpha, writer.required(1)]), writer.required(4)]);
  giveScaled(writer, addend === undefined ? product : writer.map('Add', [product, addend]), scale, 7);
};

const qlinearConv: Write = (writer) => {
  if (writer.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
  const { shape } = writer.output;
  const inputs = [writer.required(0), writer.required(3), writer.input(2), writer.input(5)];
  const sums = writer.made('ConvInteger', inputs, { datatype: 'INT32', shape }, 'own');
  const bias = writer.input(8);
  const scale = writer.map('Mul', [writer.required(1), along(writer, writer.required(4), shape.length - 2)]);
  const added = bias && writer.map('Add', [sums, along(writer, bias, shape.length - 2)]);
  giveScaled(writer, added ?? sums, scale, 6);
};

/** Times both scales, plus a bias for each column. */
function giveFloats(writer: Writer, sums: Term, scales: readonly [a: Term, b: Term], bias: Term | undefined): void {
  const floats = floatsOf(writer, sums, writer.map('Mul', [along(writer, scales[0], 1), scales[1]]));
  writer.give(bias === undefined ? floats : writer.map('Add', [floats, bias]));
}

const matmulIntegerToFloat: Write = (writer) => {
  const sums = sumsOf(writer, [writer.required(0), writer.required(1)], [writer.input(4), writer.input(5)]);
  giveFloats(writer, sums, [writer.required(2, ['FP32']), writer.required(3, ['FP32'])], writer.input(6));
};

const dynamicQuantizeMatmul: Write = (writer) => {
  const x = writer.required(0, ['FP32']);
  const results = [
    { datatype: 'UINT8', shape: x.shape },
    { datatype: 'FP32', shape: [] },
    { datatype: 'UINT8', shape: [] },
  ] as const;
  const [a, scale, zero] = writer.madeAll('DynamicQuantizeLinear', [x], results) as [Term, Term, Term];
  const sums = sumsOf(writer, [a, writer.required(1)], [zero, writer.input(3)]);
  giveFloats(writer, sums, [scale, writer.required(2)], writer.input(4));
};

const floats = is(ElementType.FLOAT);
const unsigned = is(ElementType.UINT8);
const sums = is(ElementType.INT32);

export const quantized = {
  ...each('DequantizeLinear com.microsoft.DequantizeLinear', {
    ...converting,
    types: [like(1)],
    write: linear('turntable.Dequantize'),
  }),
  ...each('QuantizeLinear com.microsoft.QuantizeLinear', {
    ...converting,
    types: [named('output_dtype', either(like(2), unsigned))],
    weights: 'first',
    write: linear('turntable.Quantize'),
  }),
  DynamicQuantizeLinear: { ...byRun, types: [unsigned, floats, unsigned], rows: rows.dynamicQuantization },
  ...each('MatMulInteger com.microsoft.MatMulInteger16', { ...product, types: [sums], shapes: shapes.matMul }),
  'com.microsoft.MatMulIntegerToFloat': { ...product, types: [floats], write: matmulIntegerToFloat },
  'com.microsoft.MatMulNBits': product,
  'com.microsoft.DynamicQuantizeMatMul': { ...product, rows: rows.quantizedProduct, write: dynamicQuantizeMatmul },
  QLinearMatMul: { ...product, types: [like(7)], rows: rows.matrixProduct(0, 3), write: qlinearMatmul },
  // Without an output scale the result is not quantized.
  'com.microsoft.QGemm': { ...product, types: [either(like(8), floats)], rows: 'unknown', write: qgemm },
  ConvInteger: { ...windowed, types: [sums], shapes: windows.conv, layer: 'conv' },
  ...each('QLinearConv com.microsoft.QLinearConv', {
    ...windowed,
    types: [like(7)],
    layer: 'conv',
    write: qlinearConv,
  }),
  'com.microsoft.QLinearAdd': { ...byRun, rows: rows.broadcast, expression: add },
  'com.microsoft.QLinearMul': { ...byRun, rows: rows.broadcast, expression: multiply },
  'com.microsoft.QLinearSigmoid': { ...byRun, rows: rows.broadcast, write: around('Sigmoid') },
  'com.microsoft.QLinearLeakyRelu': { ...byRun, rows: rows.broadcast, write: around('LeakyRelu') },
  'com.microsoft.QLinearWhere': { ...unfollowed, types: [like(1)], write: where },
  'com.microsoft.QLinearSoftmax': { ...unfollowed, write: around('Softmax') },
  'com.microsoft.QLinearConcat': { ...unfollowed, types: [like(1)], write: concat },
  'com.microsoft.QLinearAveragePool': { ...windowed, write: around('AveragePool') },
  'com.microsoft.QLinearGlobalAveragePool': {
    ...windowed,
    shapes: windows.globalPool,
    write: around('GlobalAveragePool'),
  },
  'com.microsoft.GatherBlockQuantized': { ...unfollowed, types: [like(2)], layer: 'embedding' },
} satisfies Record<string, OperatorFacts>;
