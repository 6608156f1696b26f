/**
 * Products of 8-bit whole numbers, each less its zero point: MatMulInteger, QLinearMatMul, QGemm, and ONNX Runtime's forms that give
 * floats. They are added up in 32 bits and are exact.
 */
import type { DataType } from '../../../tensor/index.ts';
import { elementOf, floatLiteral, requireDatatype } from '../common/element.ts';
import {
  broadcastIndex,
  broadcastStrides,
  coordinates,
  product as productOf,
  weightedSum,
} from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import type { Parameter } from '../common/launching.ts';
import { broadcastShapes } from '../dense/matmul.ts';
import { emitComputedProduct } from '../dense/product.ts';
import { Unsupported, type Buffer, type Emitter, type Operator, type Value } from '../types.ts';
import { emitDynamicQuantization } from './dynamic.ts';

export const bytes: readonly DataType[] = ['INT8', 'UINT8'];

/** A zero point: one for all, or one for each row or column. */
export interface ZeroPoint {
  readonly value: Pick<Value, 'buffer' | 'datatype' | 'elements' | 'shape'>;
  readonly along: 'rows' | 'columns';
}

export function zeroPointOf(value: Value | undefined, along: ZeroPoint['along']): ZeroPoint | undefined {
  if (value === undefined) return undefined;
  requireDatatype(value, [...bytes, 'INT16', 'UINT16', 'INT32']);
  return { value, along };
}

interface IntegerFactor {
  readonly value: Pick<Value, 'buffer' | 'datatype'>;
  /** Elements from item to item, for each dimension of the batch. */
  readonly strides: readonly number[];
  readonly zero: ZeroPoint | undefined;
  /** Stored as [columns, rows]. */
  readonly transposed?: boolean;
}

export interface IntegerProduct {
  readonly hint: string;
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly batch: readonly number[];
  readonly a: IntegerFactor;
  readonly b: IntegerFactor;
  /** Besides the factors and their zero points; what is written is among them. */
  readonly parameters: readonly Parameter[];
  /** C statement that stores the sum, given where it is in a contiguous result. It may name row and column. */
  readonly finish: (sum: string, at: string) => string;
}

/** C expression of a zero point; it has as many elements as rows or columns, perhaps by item of the batch. */
function zeroText(name: string, zero: ZeroPoint | undefined, batch: readonly number[], size: number): string {
  if (zero === undefined) return '0';
  const { value, along } = zero;
  const index = along === 'rows' ? '(row)' : '(column)';
  const { computed, load } = elementOf(value.datatype);
  const read = (at: string): string => `(int)(${computed})${load(`${name}[${at}]`)}`;
  if (value.elements === 1) return read('0');
  if (value.elements === size) return read(index);
  const items = productOf(batch);
  if (value.elements !== items * size) throw new Unsupported(`${value.elements} zero points for ${size} ${along}`);
  return read(`(plane) * ${size}u + ${index}`);
}

const read = (name: string, factor: IntegerFactor, at: string): string =>
  `(int)${elementOf(factor.value.datatype).load(`${name}[${at}]`)}`;

const zeros = (name: string, zero: ZeroPoint | undefined): Parameter[] =>
  zero === undefined ? [] : [{ name, type: elementOf(zero.value.datatype).stored, buffer: zero.value.buffer }];

export function emitIntegerProduct(emitter: Emitter, product: IntegerProduct): void {
  const { hint, rows, columns, depth, batch, a, b, parameters, finish } = product;
  const plane = coordinates('(plane)', batch);
  const place = (factor: IntegerFactor, outer: string, inner: string, leading: number): string =>
    `(u64)(${weightedSum(plane, factor.strides)}) + (u64)(${outer}) * ${leading} + (${inner})`;
  const atA = a.transposed === true ? place(a, '(depth)', '(row)', rows) : place(a, '(row)', '(depth)', depth);
  const atB = b.transposed === true ? place(b, '(column)', '(depth)', depth) : place(b, '(depth)', '(column)', columns);
  emitComputedProduct(emitter, {
    hint,
    rows,
    columns,
    depth,
    planes: productOf(batch),
    sum: 'int',
    parameters: [
      { name: 'a', type: elementOf(a.value.datatype).stored, buffer: a.value.buffer },
      { name: 'b', type: elementOf(b.value.datatype).stored, buffer: b.value.buffer },
      ...zeros('zeroA', a.zero),
      ...zeros('zeroB', b.zero),
      ...parameters,
    ],
    a: `${read('a', a, atA)} - ${zeroText('zeroA', a.zero, batch, rows)}`,
    b: `${read('b', b, atB)} - ${zeroText('zeroB', b.zero, batch, columns)}`,
    aRowsTogether: a.transposed !== true,
    bRowsTogether: b.transposed !== true,
    finish: finish('(x)', `(u64)(plane) * ${rows * columns} + (u64)(row) * ${columns} + (column)`),
  });
}

/** The sizes of numpy.matmul of two values, with the batch strides of each. */
function matmulSizes(a: Value, b: Value) {
  if (a.shape.length === 0 || b.shape.length === 0) throw new Unsupported('a product of a scalar');
  const left = a.shape.length === 1 ? [1, ...a.shape] : a.shape;
  const right = b.shape.length === 1 ? [...b.shape, 1] : b.shape;
  const [rows, depth, columns] = [left.at(-2)!, left.at(-1)!, right.at(-1)!];
  if (right.at(-2) !== depth) {
    throw new Unsupported(`matrices of shape [${a.shape.join(',')}] and [${b.shape.join(',')}] do not fit together`);
  }
  const batch = broadcastShapes(left.slice(0, -2), right.slice(0, -2));
  const strides = (shape: readonly number[], size: number): number[] =>
    broadcastStrides(shape.slice(0, -2), batch).map((step) => step * size);
  return { rows, depth, columns, batch, a: strides(left, rows * depth), b: strides(right, depth * columns) };
}

function emitQuantizedMatmul(
  emitter: Emitter,
  hint: string,
  factors: readonly [a: Value, b: Value],
  zeros: readonly [a: Value | undefined, b: Value | undefined],
  rest: Pick<IntegerProduct, 'parameters' | 'finish'>,
): void {
  const sizes = matmulSizes(...factors);
  emitIntegerProduct(emitter, {
    hint,
    rows: sizes.rows,
    columns: sizes.columns,
    depth: sizes.depth,
    batch: sizes.batch,
    a: { value: factors[0], strides: sizes.a, zero: zeroPointOf(zeros[0], 'rows') },
    b: { value: factors[1], strides: sizes.b, zero: zeroPointOf(zeros[1], 'columns') },
    ...rest,
  });
}

const matmulInteger = (type: string, types: readonly DataType[]): Operator => ({
  type,
  emit(emitter) {
    const factors = [emitter.required(0), emitter.required(1)] as const;
    for (const value of factors) requireDatatype(value, types);
    const output = requiredOutput(emitter);
    emitQuantizedMatmul(emitter, 'integer_product', factors, [emitter.input(2), emitter.input(3)], {
      parameters: [{ name: 'd', type: 'i32', buffer: output.buffer, access: 'write' }],
      finish: (sum, at) => `d[${at}] = ${sum}`,
    });
  },
});

/** C expression of a scale of which there is one, or one for each row or column. */
export function scaleText(name: string, { elements }: Pick<Value, 'elements'>, index: string): string {
  return `${name}[${elements === 1 ? '0' : index}]`;
}

const limits: Partial<Record<DataType, readonly [low: number, high: number]>> = {
  INT8: [-128, 127],
  UINT8: [0, 255],
  INT16: [-32_768, 32_767],
  UINT16: [0, 65_535],
};

/** C expression of a float that is rounded to a whole number of a type: halves to even, what is beyond its ends to them. */
export function saturated(text: string, datatype: DataType): string {
  const range = limits[datatype];
  if (range === undefined) throw new Unsupported(`numbers are not quantised to ${datatype}`);
  const { stored } = elementOf(datatype);
  return `(${stored})fminf(fmaxf(${text}, ${floatLiteral(range[0])}), ${floatLiteral(range[1])})`;
}

const floatParameter = (emitter: Emitter, name: string, value: Value): Parameter => {
  requireDatatype(value, ['FP32', 'FP16', 'BF16']);
  return { name, type: elementOf(value.datatype).stored, buffer: asDeclared(emitter, value).buffer };
};

const qlinearMatmul: Operator = {
  type: 'QLinearMatMul',
  emit(emitter) {
    const [a, aScale, aZero, b, bScale, bZero] = [0, 1, 2, 3, 4, 5].map((index) => emitter.required(index)) as [
      Value,
      Value,
      Value,
      Value,
      Value,
      Value,
    ];
    const [yScale, yZero] = [emitter.required(6), emitter.required(7)];
    for (const value of [a, b]) requireDatatype(value, bytes);
    const output = requiredOutput(emitter);
    const scale = elementOf(aScale.datatype);
    const read = (name: string, value: Value, index: string): string => scale.load(scaleText(name, value, index));
    emitQuantizedMatmul(emitter, 'quantized_product', [a, b], [aZero, bZero], {
      parameters: [
        floatParameter(emitter, 'scaleA', aScale),
        floatParameter(emitter, 'scaleB', bScale),
        floatParameter(emitter, 'scaleD', yScale),
        { name: 'zeroD', type: elementOf(yZero.datatype).stored, buffer: yZero.buffer },
        { name: 'd', type: elementOf(output.datatype).stored, buffer: output.buffer, access: 'write' },
      ],
      finish: (sum, at) => {
        const factor = `${read('scaleA', aScale, '(row)')} * ${read('scaleB', bScale, '(column)')} / ${read('scaleD', yScale, '0')}`;
        return `d[${at}] = ${saturated(`rintf((float)${sum} * (${factor})) + (float)zeroD[0]`, output.datatype)}`;
      },
    });
  },
};

const loadScale = (name: string, value: Value, index: string): string =>
  elementOf(value.datatype).load(scaleText(name, value, index));

/** Floats of a product: by both scales, with a bias for each column. */
function emitToFloat(
  emitter: Emitter,
  factors: readonly [a: Value, b: Value],
  zeros: readonly [a: Value | undefined, b: Value | undefined],
  scales: readonly [a: Value, b: Value],
  bias: Value | undefined,
): void {
  const output = requiredOutput(emitter);
  const element = elementOf(output.datatype);
  emitQuantizedMatmul(emitter, 'dequantized_product', factors, zeros, {
    parameters: [
      floatParameter(emitter, 'scaleA', scales[0]),
      floatParameter(emitter, 'scaleB', scales[1]),
      ...(bias === undefined ? [] : [floatParameter(emitter, 'bias', bias)]),
      { name: 'd', type: element.stored, buffer: output.buffer, access: 'write' },
    ],
    finish: (sum, at) => {
      const factor = `${loadScale('scaleA', scales[0], '(row)')} * ${loadScale('scaleB', scales[1], '(column)')}`;
      const added = bias === undefined ? '' : ` + ${elementOf(bias.datatype).load('bias[column]')}`;
      return `d[${at}] = ${element.store(`(float)${sum} * (${factor})${added}`)}`;
    },
  });
}

const matmulIntegerToFloat: Operator = {
  type: 'com.microsoft.MatMulIntegerToFloat',
  emit(emitter) {
    const factors = [emitter.required(0), emitter.required(1)] as const;
    for (const value of factors) requireDatatype(value, bytes);
    const scales = [emitter.required(2), emitter.required(3)] as const;
    emitToFloat(emitter, factors, [emitter.input(4), emitter.input(5)], scales, emitter.input(6));
  },
};

const dynamicQuantizeMatmul: Operator = {
  type: 'com.microsoft.DynamicQuantizeMatMul',
  emit(emitter) {
    const [input, b, bScale] = [emitter.required(0), emitter.required(1), emitter.required(2)];
    requireDatatype(input, ['FP32']);
    requireDatatype(b, bytes);
    const made = (datatype: DataType, shape: readonly number[], buffer: Buffer): Value => ({
      name: input.name,
      datatype,
      kept: datatype,
      shape,
      elements: productOf(shape),
      buffer,
      constant: false,
    });
    const a = made('UINT8', input.shape, emitter.scratch(input.elements));
    const scale = made('FP32', [], emitter.scratch(4));
    const zero = made('UINT8', [], emitter.scratch(1));
    emitDynamicQuantization(emitter, input, { y: a.buffer, scale: scale.buffer, zero: zero.buffer });
    emitToFloat(emitter, [a, b], [zero, emitter.input(3)], [scale, bScale], emitter.input(4));
  },
};

/** A x B + C, to floats or, where there is a scale for the output, to 8 bits. */
const qgemm: Operator = {
  type: 'com.microsoft.QGemm',
  emit(emitter) {
    const [a, aScale, b, bScale] = [emitter.required(0), emitter.required(1), emitter.required(3), emitter.required(4)];
    const [aZero, bZero, c, yScale, yZero] = [2, 5, 6, 7, 8].map((index) => emitter.input(index));
    for (const value of [a, b]) requireDatatype(value, bytes);
    const output = requiredOutput(emitter);
    const [transA, transB] = [emitter.attribute('transA', 0) !== 0, emitter.attribute('transB', 0) !== 0];
    const [rows, depth] = (transA ? a.shape.toReversed() : a.shape) as [number, number];
    const columns = (transB ? b.shape[0] : b.shape[1])!;
    const element = elementOf(output.datatype);
    const alpha = emitter.attribute('alpha', 1);
    const factor = `${floatLiteral(alpha)} * scaleA[0] * ${scaleText('scaleB', bScale, '(column)')}`;
    const added =
      c === undefined ? '' : ` + c[${broadcastIndex(`((row) * ${columns}u + (column))`, c.shape, [rows, columns])}]`;
    emitIntegerProduct(emitter, {
      hint: 'quantized_gemm',
      rows,
      columns,
      depth,
      batch: [],
      a: { value: a, strides: [], zero: zeroPointOf(aZero, 'rows'), transposed: transA },
      b: { value: b, strides: [], zero: zeroPointOf(bZero, 'columns'), transposed: transB },
      parameters: [
        floatParameter(emitter, 'scaleA', aScale),
        floatParameter(emitter, 'scaleB', bScale),
        ...(c === undefined ? [] : [{ name: 'c', type: 'i32', buffer: c.buffer }]),
        ...(yScale === undefined ? [] : [floatParameter(emitter, 'scaleD', yScale)]),
        ...(yZero === undefined
          ? []
          : [{ name: 'zeroD', type: elementOf(yZero.datatype).stored, buffer: yZero.buffer }]),
        { name: 'd', type: element.stored, buffer: output.buffer, access: 'write' },
      ],
      finish: (sum, at) => {
        const value = `(float)(${sum}${added})`;
        if (yScale === undefined) return `d[${at}] = ${value} * (${factor})`;
        const places = `rintf(${value} * (${factor} / scaleD[0]))${yZero === undefined ? '' : ' + (float)zeroD[0]'}`;
        return `d[${at}] = ${saturated(places, output.datatype)}`;
      },
    });
  },
};

export const quantizedProductOperators: readonly Operator[] = [
  matmulInteger('MatMulInteger', bytes),
  matmulInteger('com.microsoft.MatMulInteger16', ['INT16']),
  qlinearMatmul,
  matmulIntegerToFloat,
  dynamicQuantizeMatmul,
  qgemm,
];
