/**
 * Products of 8-bit integers minus their zero points: MatMulInteger, QLinearMatMul, QGemm, and ONNX Runtime's variants
 * with float results. Sums are 32-bit integers, and exact.
 */
import type { DataType } from '../../../tensor/index.ts';
import { elementOf, floatLiteral, requireDatatype } from '../common/element.ts';
import { broadcastIndex, coordinates, product as productOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput, scratchValue } from '../common/inputs.ts';
import { allElementsOf, elementsOf, parametersOf, written, type ElementsOf, type Uses } from '../common/elements.ts';
import { broadcastShapes, factorOf, sidesOf } from '../dense/matmul.ts';
import { emitComputedProduct, type Product } from '../dense/product.ts';
import { type Emitter, type KernelName, type Kernels, type Operator, Unsupported, type Value } from '../types.ts';
import { emitDynamicQuantization } from './dynamic.ts';

export const bytes: readonly DataType[] = ['INT8', 'UINT8'];

/** One zero point, or one for each row or column. */
export interface ZeroPoint {
  readonly value: Value;
  readonly along: 'rows' | 'columns';
}

export function zeroPointOf(value: Value | undefined, along: ZeroPoint['along']): ZeroPoint | undefined {
  if (value === undefined) return undefined;
  requireDatatype(value, [...bytes, 'INT16', 'UINT16', 'INT32']);
  return { value, along };
}

interface IntegerFactor {
  readonly value: Value;
  /** Elements from item to item, for each dimension of the batch. */
  readonly strides: readonly number[];
  readonly zero: ZeroPoint | undefined;
  /** Stored as [columns, rows]. */
  readonly transposed?: boolean;
}

export interface IntegerProduct<Given extends Uses> extends Pick<Product, 'rows' | 'columns' | 'depth' | 'batch'> {
  readonly hint: string;
  readonly a: IntegerFactor;
  readonly b: IntegerFactor;
  /** Tensors besides the factors and their zero points, the output among them. */
  readonly tensors: Given;
  /** C statement that stores the sum. `at`: the index in a contiguous result; `row` and `column` exist too. */
  readonly finish: (sum: string, at: string, of: ElementsOf<Given>) => string;
}

/** C expression of a zero point, which has one element, one for each row or column, or these for each batch item. */
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

export function emitIntegerProduct<Given extends Uses>(emitter: Emitter, product: IntegerProduct<Given>): void {
  const { hint, rows, columns, depth, batch, a, b, tensors, finish } = product;
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
    parameters: parametersOf({ a: a.value, b: b.value, zeroA: a.zero?.value, zeroB: b.zero?.value, ...tensors }),
    a: `(int)${elementsOf('a', a.value).at(atA)} - ${zeroText('zeroA', a.zero, batch, rows)}`,
    b: `(int)${elementsOf('b', b.value).at(atB)} - ${zeroText('zeroB', b.zero, batch, columns)}`,
    aRowsTogether: a.transposed !== true,
    bRowsTogether: b.transposed !== true,
    finish: finish(
      '(x)',
      `(u64)(plane) * ${rows * columns} + (u64)(row) * ${columns} + (column)`,
      allElementsOf(tensors),
    ),
  });
}

function emitQuantizedMatmul<Given extends Uses>(
  emitter: Emitter,
  hint: string,
  factors: readonly [a: Value, b: Value],
  zeros: readonly [a: Value | undefined, b: Value | undefined],
  rest: Pick<IntegerProduct<Given>, 'tensors' | 'finish'>,
): void {
  const { left, right } = sidesOf(...factors);
  const batch = broadcastShapes(left.batch, right.batch);
  emitIntegerProduct(emitter, {
    hint,
    rows: left.rows,
    columns: right.columns,
    depth: left.columns,
    batch,
    a: { value: factors[0], strides: factorOf(left, batch).batchStrides, zero: zeroPointOf(zeros[0], 'rows') },
    b: { value: factors[1], strides: factorOf(right, batch).batchStrides, zero: zeroPointOf(zeros[1], 'columns') },
    ...rest,
  });
}

const matmulInteger = <Type extends KernelName>(type: Type, types: readonly DataType[]): Operator<Type> => ({
  type,
  emit(emitter) {
    const factors = [emitter.required(0, types), emitter.required(1, types)] as const;
    const output = requiredOutput(emitter);
    emitQuantizedMatmul(emitter, 'integer_product', factors, [emitter.input(2), emitter.input(3)], {
      tensors: { d: written(output) },
      finish: (sum, at, { d }) => d.set(at, sum),
    });
  },
});

/** The index of a scale that has one element, or one for each `index`. */
export const scaleAt = ({ elements }: Value, index: string): string => (elements === 1 ? '0' : index);

const limits: Partial<Record<DataType, readonly [low: number, high: number]>> = {
  INT8: [-128, 127],
  UINT8: [0, 255],
  INT16: [-32_768, 32_767],
  UINT16: [0, 65_535],
};

/** C expression that saturates a rounded float to an integer type. */
export function saturated(text: string, datatype: DataType): string {
  const range = limits[datatype];
  if (range === undefined) throw new Unsupported(`numbers are not quantised to ${datatype}`);
  const { stored } = elementOf(datatype);
  return `(${stored})fminf(fmaxf(${text}, ${floatLiteral(range[0])}), ${floatLiteral(range[1])})`;
}

/** The same for the type of the node's result. */
export const narrowed = (emitter: Emitter, text: string): string =>
  saturated(text, emitter.output(0)?.datatype ?? 'UINT8');

function asFloats(emitter: Emitter, value: Value): Value {
  requireDatatype(value, ['FP32', 'FP16', 'BF16']);
  return asDeclared(emitter, value);
}

const qlinearMatmul = {
  type: 'QLinearMatMul',
  emit(emitter) {
    const [a, aScale, aZero] = [emitter.required(0, bytes), emitter.required(1), emitter.required(2)];
    const [b, bScale, bZero] = [emitter.required(3, bytes), emitter.required(4), emitter.required(5)];
    const [yScale, yZero] = [emitter.required(6), emitter.required(7)];
    const output = requiredOutput(emitter);
    emitQuantizedMatmul(emitter, 'quantized_product', [a, b], [aZero, bZero], {
      tensors: {
        scaleA: asFloats(emitter, aScale),
        scaleB: asFloats(emitter, bScale),
        scaleD: asFloats(emitter, yScale),
        zeroD: yZero,
        d: written(output),
      },
      finish: (sum, at, { scaleA, scaleB, scaleD, d }) => {
        const factor = `${scaleA.at(scaleAt(aScale, '(row)'))} * ${scaleB.at(scaleAt(bScale, '(column)'))} / ${scaleD.at('0')}`;
        return d.set(at, saturated(`rintf((float)${sum} * (${factor})) + (float)zeroD[0]`, output.datatype));
      },
    });
  },
} satisfies Kernels;

/** A product with float results: times both scales, plus a bias for each column. */
function emitToFloat(
  emitter: Emitter,
  factors: readonly [a: Value, b: Value],
  zeros: readonly [a: Value | undefined, b: Value | undefined],
  scales: readonly [a: Value, b: Value],
  bias: Value | undefined,
): void {
  const output = requiredOutput(emitter);
  emitQuantizedMatmul(emitter, 'dequantized_product', factors, zeros, {
    tensors: {
      scaleA: asFloats(emitter, scales[0]),
      scaleB: asFloats(emitter, scales[1]),
      bias: bias && asFloats(emitter, bias),
      d: written(output),
    },
    finish: (sum, at, of) => {
      const factor = `${of.scaleA.at(scaleAt(scales[0], '(row)'))} * ${of.scaleB.at(scaleAt(scales[1], '(column)'))}`;
      return of.d.set(at, `(float)${sum} * (${factor})${of.bias ? ` + ${of.bias.at('column')}` : ''}`);
    },
  });
}

const matmulIntegerToFloat = {
  type: 'com.microsoft.MatMulIntegerToFloat',
  emit(emitter) {
    const factors = [emitter.required(0, bytes), emitter.required(1, bytes)] as const;
    const scales = [emitter.required(2), emitter.required(3)] as const;
    emitToFloat(emitter, factors, [emitter.input(4), emitter.input(5)], scales, emitter.input(6));
  },
} satisfies Kernels;

const dynamicQuantizeMatmul = {
  type: 'com.microsoft.DynamicQuantizeMatMul',
  emit(emitter) {
    const [input, b, bScale] = [emitter.required(0, ['FP32']), emitter.required(1, bytes), emitter.required(2)];
    const a = scratchValue(emitter, 'UINT8', input.shape);
    const scale = scratchValue(emitter, 'FP32', []);
    const zero = scratchValue(emitter, 'UINT8', []);
    emitDynamicQuantization(emitter, input, { y: a.buffer, scale: scale.buffer, zero: zero.buffer });
    emitToFloat(emitter, [a, b], [zero, emitter.input(3)], [scale, bScale], emitter.input(4));
  },
} satisfies Kernels;

/** A x B + C as floats, or as 8 bits if there is a scale for the output. */
const qgemm = {
  type: 'com.microsoft.QGemm',
  emit(emitter) {
    const [a, aScale] = [emitter.required(0, bytes), emitter.required(1)];
    const [b, bScale] = [emitter.required(3, bytes), emitter.required(4)];
    const [aZero, bZero, c, yScale, yZero] = [2, 5, 6, 7, 8].map((index) => emitter.input(index));
    const output = requiredOutput(emitter);
    const [transA, transB] = [emitter.attribute('transA', 0) !== 0, emitter.attribute('transB', 0) !== 0];
    const [rows, depth] = (transA ? a.shape.toReversed() : a.shape) as [number, number];
    const columns = (transB ? b.shape[0] : b.shape[1])!;
    const alpha = floatLiteral(emitter.attribute('alpha', 1));
    const cIndex = c && broadcastIndex(`((row) * ${columns}u + (column))`, c.shape, [rows, columns]);
    emitIntegerProduct(emitter, {
      hint: 'quantized_gemm',
      rows,
      columns,
      depth,
      batch: [],
      a: { value: a, strides: [], zero: zeroPointOf(aZero, 'rows'), transposed: transA },
      b: { value: b, strides: [], zero: zeroPointOf(bZero, 'columns'), transposed: transB },
      tensors: {
        scaleA: asFloats(emitter, aScale),
        scaleB: asFloats(emitter, bScale),
        c,
        scaleD: yScale && asFloats(emitter, yScale),
        zeroD: yZero,
        d: written(output),
      },
      finish: (sum, at, { scaleA, scaleB, scaleD, d }) => {
        const factor = `${alpha} * ${scaleA.at('0')} * ${scaleB.at(scaleAt(bScale, '(column)'))}`;
        const value = `(float)(${sum}${cIndex === undefined ? '' : ` + c[${cIndex}]`})`;
        if (scaleD === undefined) return d.set(at, `${value} * (${factor})`);
        const places = `rintf(${value} * (${factor} / ${scaleD.at('0')}))${yZero ? ' + (float)zeroD[0]' : ''}`;
        return d.set(at, saturated(places, output.datatype));
      },
    });
  },
} satisfies Kernels;

export const quantizedProductOperators = [
  matmulInteger('MatMulInteger', bytes),
  matmulInteger('com.microsoft.MatMulInteger16', ['INT16']),
  qlinearMatmul,
  matmulIntegerToFloat,
  dynamicQuantizeMatmul,
  qgemm,
] as const satisfies readonly Kernels[];
