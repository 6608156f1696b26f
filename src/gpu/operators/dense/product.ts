/**
 * Matrix products of every form. cuBLASLt computes them if it can; the engine's own kernel computes 64-bit floats,
 * integers, and batches that would need too many calls.
 */
import { Unsupported, accumulatorOf, elementOf, floatLiteral } from '../../../operators/index.ts';
import { elementCount, elementBytes, type DataType } from '../../../tensor/index.ts';
import type { MatmulEpilogue, MatmulType } from '../../driver/types.ts';
import { changed, forEachElement, parametersOf, written, type Stored } from '../common/elements.ts';
import { convert } from '../common/inputs.ts';
import { collapse, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { kernelFrom } from '../common/kernel-file.ts';
import { argumentsOf, declared, type Parameter } from '../common/launching.ts';
import type { Buffer, Emitter } from '../types.ts';

export type Activation = 'none' | 'relu' | 'gelu-tanh';

/** A factor of a product: row-major matrices, by batch. */
export interface Factor extends Stored {
  /** Stored as [columns, rows]. */
  readonly transposed?: boolean;
  /** Elements from one stored row to the next. */
  readonly leading: number;
  /** Elements from one item to the next, for each dimension of the batch; 0 if items share the matrix. */
  readonly batchStrides?: readonly number[];
}

/** D[batch, rows, columns] = activation(alpha x A x B + bias), or with `accumulate` D += that. */
export interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly batch: readonly number[];
  readonly a: Factor;
  readonly b: Factor;
  readonly d: Stored & {
    /** Elements from row to row, and from item to item for each dimension of the batch. Default: contiguous. */
    readonly leading?: number;
    readonly batchStrides?: readonly number[];
  };
  readonly alpha?: number;
  /** One value for each column, of D's type. */
  readonly bias?: Buffer | undefined;
  /** Elements from one item's bias to the next, for a batch of one dimension. Default 0: all items share it. */
  readonly biasStride?: number | undefined;
  readonly activation?: Activation;
  readonly accumulate?: boolean;
}

const libraryTypes: Partial<Record<DataType, MatmulType>> = { FP32: 'f32', FP16: 'f16', BF16: 'bf16' };

export const productTypes: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64', 'UINT32', 'UINT64'];

/** More library calls than this take longer than one launch of the slower kernel. */
const callsMax = 64;

/** A product with all strides filled in. */
export type Placed = Product & { readonly [Side in 'a' | 'b' | 'd']: Required<Product[Side]> };

function placed(product: Product): Placed {
  const { rows, columns, batch, a, b, d } = product;
  const leading = d.leading ?? columns;
  const whole = { transposed: false, batchStrides: [] };
  return {
    ...product,
    a: { ...whole, ...a },
    b: { ...whole, ...b },
    d: { ...d, leading, batchStrides: d.batchStrides ?? stridesOf(batch).map((step) => step * rows * leading) },
  };
}

export function emitProduct(emitter: Emitter, product: Product): void {
  const { rows, columns, depth, batch, d } = product;
  if (rows * columns * elementCount(batch) === 0) return;
  if (depth === 0) {
    emitEmptySum(emitter, placed(product));
    return;
  }
  const joined = joinBatch(placed(withOneType(emitter, product)));
  const type = libraryTypes[joined.a.storedType];
  const typeD = libraryTypes[d.storedType];
  const [outer, calls] = splitBatch(joined);
  const byLibrary =
    type !== undefined &&
    typeD !== undefined &&
    joined.b.storedType === joined.a.storedType &&
    (typeD === type || typeD === 'f32') &&
    calls <= callsMax;
  if (byLibrary) emitLibraryCalls(emitter, joined, outer, type, typeD);
  else emitComputedProduct(emitter, ownProduct(joined));
}

/** Converts the factor of the wider type to the narrower one, in scratch memory. */
function withOneType(emitter: Emitter, product: Product): Product {
  const { a, b } = product;
  if (a.storedType === b.storedType) return product;
  if (libraryTypes[a.storedType] === undefined || libraryTypes[b.storedType] === undefined) return product;
  return elementBytes[a.storedType] > elementBytes[b.storedType]
    ? { ...product, a: { ...a, ...convert(emitter, a, b.storedType) } }
    : { ...product, b: { ...b, ...convert(emitter, b, a.storedType) } };
}

/** Joins dimensions of the batch. If the items of A are adjacent and share B, they become more rows of one product. */
function joinBatch(product: Placed): Placed {
  const { a, b, d, rows, depth } = product;
  const dimensions = collapse(product.batch, a.batchStrides, b.batchStrides, d.batchStrides);
  const [only] = dimensions;
  const [stepA, stepB, stepD] = only?.steps ?? [];
  const areRows =
    dimensions.length === 1 &&
    !a.transposed &&
    a.leading === depth &&
    stepA === rows * depth &&
    stepB === 0 &&
    stepD === rows * d.leading;
  const left = areRows ? [] : dimensions;
  const along = (index: number): number[] => left.map(({ steps }) => steps[index]!);
  return {
    ...product,
    rows: areRows ? rows * only!.size : rows,
    batch: left.map(({ size }) => size),
    a: { ...a, batchStrides: along(0) },
    b: { ...b, batchStrides: along(1) },
    d: { ...d, batchStrides: along(2) },
  };
}

/** The dimension of the batch that one library call computes, and the number of calls. */
function splitBatch({ batch }: Placed): [axis: number, calls: number] {
  const axis = batch.indexOf(Math.max(...batch));
  return [axis, axis === -1 ? 1 : elementCount(batch) / batch[axis]!];
}

function emitLibraryCalls(emitter: Emitter, product: Placed, axis: number, type: MatmulType, typeD: MatmulType): void {
  const { rows, columns, depth, batch, a, b, d, bias, alpha = 1, activation = 'none', accumulate = false } = product;
  const others = batch.map((size, index) => (index === axis ? 1 : size));
  const size = axis === -1 ? 1 : batch[axis]!;
  const strideOf = (of: readonly number[]): number => (size === 1 ? 0 : of[axis]!);
  const description = {
    m: rows,
    n: columns,
    k: depth,
    batch: size,
    transposeA: a.transposed,
    transposeB: b.transposed,
    lda: a.leading,
    ldb: b.leading,
    ldd: d.leading,
    strideA: strideOf(a.batchStrides),
    strideB: strideOf(b.batchStrides),
    strideD: strideOf(d.batchStrides),
    typeA: type,
    typeB: type,
    typeD,
    alpha,
    beta: accumulate ? 1 : 0,
    epilogue: epilogueOf(activation, bias !== undefined),
    ...(product.biasStride === undefined ? {} : { strideBias: product.biasStride }),
  };
  for (let call = 0; call < elementCount(others); call++) {
    const place = indicesOf(call, others);
    const at = (buffer: Buffer, bytes: number, of: readonly number[], extent: number): Buffer => {
      let start = 0;
      for (const [index, coordinate] of place.entries()) start += coordinate * of[index]!;
      return emitter.part(buffer, start * bytes, extent * bytes);
    };
    emitter.matmul(description, {
      a: at(a.buffer, elementBytes[a.storedType], a.batchStrides, extentOf(a, rows, depth, description.strideA, size)),
      b: at(
        b.buffer,
        elementBytes[b.storedType],
        b.batchStrides,
        extentOf(b, depth, columns, description.strideB, size),
      ),
      d: at(
        d.buffer,
        elementBytes[d.storedType],
        d.batchStrides,
        description.strideD * (size - 1) + d.leading * (rows - 1) + columns,
      ),
      ...(bias === undefined ? {} : { bias }),
    });
  }
}

/** Elements of a factor that a call reads, including gaps. */
function extentOf(factor: Required<Factor>, rows: number, columns: number, stride: number, items: number): number {
  const [outer, inner] = factor.transposed ? [columns, rows] : [rows, columns];
  return stride * (items - 1) + factor.leading * (outer - 1) + inner;
}

function indicesOf(place: number, sizes: readonly number[]): number[] {
  const strides = stridesOf(sizes);
  return sizes.map((size, axis) => Math.floor(place / strides[axis]!) % size);
}

function epilogueOf(activation: Activation, bias: boolean): MatmulEpilogue {
  if (activation === 'none') return bias ? 'bias' : 'none';
  return bias ? `${activation}-bias` : activation;
}

/** C expression of an activation of a float or double `value`. */
export function activationExpression(activation: Activation, value: string, type: string): string {
  // A comparison keeps NaN, which fmaxf does not.
  if (activation === 'relu') return `(${value} < 0 ? (${type})0 : ${value})`;
  if (activation === 'none') return value;
  const tanh = type === 'double' ? 'tanh' : 'tanhf';
  const constant = (number: number): string => `(${type})${number}`;
  const cube = `${constant(0.044715)} * ${value} * ${value} * ${value}`;
  return `(${constant(0.5)} * ${value} * (1 + ${tanh}(${constant(Math.sqrt(2 / Math.PI))} * (${value} + ${cube}))))`;
}

/** A product for the engine's own kernel. @throws Unsupported */
export function ownProduct(product: Placed): ComputedProduct {
  const { rows, columns, depth, batch, a, b, d, bias, alpha = 1, activation = 'none', accumulate = false } = product;
  const sum = accumulatorOf(d.storedType);
  const isFloat = sum === 'float' || sum === 'double';
  if (!isFloat && (alpha !== 1 || activation !== 'none')) {
    throw new Unsupported(`a product of ${d.storedType} with a factor or an activation`);
  }
  const [typeA, typeB, typeD] = [elementOf(a.storedType), elementOf(b.storedType), elementOf(d.storedType)];
  const plane = coordinates('(plane)', batch);
  const place = (strides: readonly number[], leading: number, outer: string, inner: string): string =>
    `(u64)(${weightedSum(plane, strides)}) + (u64)(${outer}) * ${leading} + (${inner})`;
  const at = (factor: Required<Factor>, row: string, column: string): string =>
    factor.transposed
      ? place(factor.batchStrides, factor.leading, column, row)
      : place(factor.batchStrides, factor.leading, row, column);
  const scaled = alpha === 1 ? 'x' : `(${sum})${floatLiteral(alpha, 'double')} * x`;
  const target = `d[${place(d.batchStrides, d.leading, '(row)', '(column)')}]`;
  const terms = [
    scaled,
    ...(bias === undefined ? [] : [typeD.load(`bias[${place([product.biasStride ?? 0], 0, '0', 'column')}]`)]),
    ...(accumulate ? [typeD.load(target)] : []),
  ];
  return {
    hint: 'product',
    rows,
    columns,
    depth,
    planes: elementCount(batch),
    sum,
    parameters: parametersOf({
      a,
      b,
      bias: bias && { buffer: bias, storedType: d.storedType },
      d: accumulate ? changed(d) : written(d),
    }),
    a: typeA.load(`a[${at(a, '(row)', '(depth)')}]`),
    b: typeB.load(`b[${at(b, '(depth)', '(column)')}]`),
    aRowsTogether: !a.transposed,
    bRowsTogether: !b.transposed,
    finish: `${target} = ${typeD.store(activationExpression(activation, `(${terms.join(' + ')})`, sum))}`,
  };
}

/** A product of C expressions, which for example dequantise elements or pick them from an image while they are read. */
export interface ComputedProduct extends Pick<Product, 'rows' | 'columns' | 'depth'> {
  readonly hint: string;
  readonly planes: number;
  /** C type of the sums. */
  readonly sum: string;
  readonly parameters: readonly Parameter[];
  /** C expression over plane, row and depth. */
  readonly a: string;
  /** C expression over plane, depth and column. */
  readonly b: string;
  readonly aRowsTogether: boolean;
  readonly bRowsTogether: boolean;
  /** C statement over x, plane, row and column. */
  readonly finish: string;
}

export function emitComputedProduct(emitter: Emitter, product: ComputedProduct): void {
  if (product.rows * product.columns * product.planes === 0) return;
  const { source, blocks, threads } = kernelOf(product);
  emitter.launch({
    kernel: emitter.kernel(product.hint, source),
    grid: [blocks],
    block: [threads],
    arguments: argumentsOf(product.parameters),
  });
}

/** The kernel of a product, with its number of blocks and of threads per block. */
export function kernelOf(product: ComputedProduct): { source: string; blocks: number; threads: number } {
  const { rows, columns, depth, planes, sum, parameters, a, b, aRowsTogether, bRowsTogether, finish } = product;
  // Larger tiles read each operand less often, but a small product would leave most of one empty.
  const tile = rows > 32 && columns > 32 ? 64 : 32;
  const source = kernelFrom('product', {
    PARAMETERS: declared(parameters).join(', '),
    SUM: sum,
    'A_VALUE(plane, row, depth)': a,
    'B_VALUE(plane, depth, column)': b,
    'FINISH(x, plane, row, column)': finish,
    ROWS: `${rows}u`,
    COLUMNS: `${columns}u`,
    DEPTH: `${depth}u`,
    A_ROWS_TOGETHER: aRowsTogether ? 1 : 0,
    B_ROWS_TOGETHER: bRowsTogether ? 1 : 0,
    TILE: `${tile}u`,
  });
  const tiles = Math.ceil(rows / tile) * Math.ceil(columns / tile);
  return { source, blocks: tiles * planes, threads: (tile / 4) ** 2 };
}

/** A product of depth 0: the activation of the bias, added to D if it accumulates. */
function emitEmptySum(emitter: Emitter, product: Placed): void {
  const { rows, columns, batch, d, bias, activation = 'none', accumulate = false } = product;
  const sum = accumulatorOf(d.storedType);
  const at = weightedSum(coordinates('i', [...batch, rows, columns]), [...d.batchStrides, d.leading, 1]);
  const tensors = {
    bias: bias && { buffer: bias, storedType: d.storedType },
    output: accumulate ? changed(d) : written(d),
  };
  forEachElement(emitter, 'empty_product', rows * columns * elementCount(batch), tensors, (of) => {
    const terms = [...(of.bias ? [of.bias.at(`i % ${columns}u`)] : []), ...(accumulate ? [of.output.at(at)] : [])];
    return [
      `const ${sum} y = ${terms.join(' + ') || '0'};`,
      of.output.set(at, activationExpression(activation, 'y', sum)),
    ];
  });
}
