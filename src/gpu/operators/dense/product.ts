/**
 * Matrix products of every form: by cuBLASLt wherever it can, by a kernel of our own elsewhere (64-bit and whole
 * numbers, batches without one stride, and everything where the settings say so).
 */
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import type { MatmulEpilogue, MatmulType } from '../../driver/types.ts';
import { accumulatorOf, elementOf, floatLiteral } from '../common/element.ts';
import { changed, forEachElement, parametersOf, written, type Stored } from '../common/elements.ts';
import { collapse, coordinates, product as productOf, stridesOf, weightedSum } from '../common/indexing.ts';
import { kernelFrom } from '../common/kernel-file.ts';
import { argumentsOf, declared, type Parameter } from '../common/launching.ts';
import { Unsupported, type Buffer, type Emitter } from '../types.ts';

export type Activation = 'none' | 'relu' | 'gelu-tanh';

/** One factor of a product: matrices in row-major order, by batch. */
export interface Factor extends Stored {
  /** Stored as [columns, rows]. */
  readonly transposed?: boolean;
  /** Elements from one stored row to the next. */
  readonly leading: number;
  /** Elements from one item to the next, for each dimension of the batch; 0 where all share it. */
  readonly batchStrides?: readonly number[];
}

/** D[batch, rows, columns] = activation(alpha x A x B + bias), or that added to D. */
export interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly batch: readonly number[];
  readonly a: Factor;
  readonly b: Factor;
  readonly d: Stored & {
    /** Elements from row to row and, for each dimension of the batch, from item to item; contiguous unless given. */
    readonly leading?: number;
    readonly batchStrides?: readonly number[];
  };
  readonly alpha?: number;
  /** One value for each column, of D's type. */
  readonly bias?: Buffer | undefined;
  /** Elements from one item's bias to the next; 0, all share it, unless given. For a batch of one dimension. */
  readonly biasStride?: number | undefined;
  readonly activation?: Activation;
  /** D holds what is added to. */
  readonly accumulate?: boolean;
}

const libraryTypes: Partial<Record<DataType, MatmulType>> = { FP32: 'f32', FP16: 'f16', BF16: 'bf16' };

/** Types that products are made of. */
export const productTypes: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64', 'UINT32', 'UINT64'];

/** More calls of the library than this cost more than a slower kernel. */
const callsMax = 64;

/** A product whose sides have their strides. */
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
  if (rows * columns * productOf(batch) === 0) return;
  if (depth === 0) {
    emitEmptySum(emitter, placed(product));
    return;
  }
  const joined = joinBatch(placed(withOneType(emitter, product)));
  const type = libraryTypes[joined.a.kept];
  const typeD = libraryTypes[d.kept];
  const [outer, calls] = splitBatch(joined);
  const byLibrary =
    emitter.settings.products !== 'own' &&
    type !== undefined &&
    typeD !== undefined &&
    joined.b.kept === joined.a.kept &&
    (typeD === type || typeD === 'f32') &&
    calls <= callsMax;
  if (byLibrary) emitLibraryCalls(emitter, joined, outer, type, typeD);
  else emitComputedProduct(emitter, ownProduct(joined));
}

/** Both factors in one type: the narrower of the two, to which the other is converted in scratch memory. */
function withOneType(emitter: Emitter, product: Product): Product {
  const { a, b } = product;
  if (a.kept === b.kept || emitter.settings.products === 'own') return product;
  if (libraryTypes[a.kept] === undefined || libraryTypes[b.kept] === undefined) return product;
  return elementBytes[a.kept] > elementBytes[b.kept]
    ? { ...product, a: { ...a, ...convert(emitter, a, b.kept) } }
    : { ...product, b: { ...b, ...convert(emitter, b, a.kept) } };
}

/** The same elements in another type, in scratch memory. */
export function convert(emitter: Emitter, { buffer, kept }: Stored, to: DataType): Stored {
  const count = buffer.bytes / elementBytes[kept];
  const converted = { buffer: emitter.scratch(count * elementBytes[to]), kept: to };
  const tensors = { input: { buffer, kept }, output: written(converted) };
  forEachElement(emitter, 'convert', count, tensors, ({ input, output }) => output.set('i', input.at('i')));
  return converted;
}

/**
 * The fewest dimensions of the batch; none where the items of A lie one after the other and share B: then they are more
 * rows.
 */
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

/** The dimension of the batch that one call does, and how many calls that makes. */
function splitBatch({ batch }: Placed): [axis: number, calls: number] {
  const axis = batch.indexOf(Math.max(...batch));
  return [axis, axis === -1 ? 1 : productOf(batch) / batch[axis]!];
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
  for (let call = 0; call < productOf(others); call++) {
    const place = indicesOf(call, others);
    const at = (buffer: Buffer, bytes: number, of: readonly number[], extent: number): Buffer => {
      let start = 0;
      for (const [index, coordinate] of place.entries()) start += coordinate * of[index]!;
      return emitter.part(buffer, start * bytes, extent * bytes);
    };
    emitter.matmul(description, {
      a: at(a.buffer, elementBytes[a.kept], a.batchStrides, extentOf(a, rows, depth, description.strideA, size)),
      b: at(b.buffer, elementBytes[b.kept], b.batchStrides, extentOf(b, depth, columns, description.strideB, size)),
      d: at(
        d.buffer,
        elementBytes[d.kept],
        d.batchStrides,
        description.strideD * (size - 1) + d.leading * (rows - 1) + columns,
      ),
      ...(bias === undefined ? {} : { bias }),
    });
  }
}

/** Elements that a call reads of a factor. */
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

/** C expression of an activation of a float or double. */
export function activationExpression(activation: Activation, value: string, type: string): string {
  // Comparisons as they stand let NaN through, which the intrinsic maxima do not.
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
  const sum = accumulatorOf(d.kept);
  const isFloat = sum === 'float' || sum === 'double';
  if (!isFloat && (alpha !== 1 || activation !== 'none')) {
    throw new Unsupported(`a product of ${d.kept} with a factor or an activation`);
  }
  const [typeA, typeB, typeD] = [elementOf(a.kept), elementOf(b.kept), elementOf(d.kept)];
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
    planes: productOf(batch),
    sum,
    parameters: parametersOf({
      a,
      b,
      bias: bias && { buffer: bias, kept: d.kept },
      d: accumulate ? changed(d) : written(d),
    }),
    a: typeA.load(`a[${at(a, '(row)', '(depth)')}]`),
    b: typeB.load(`b[${at(b, '(depth)', '(column)')}]`),
    aRowsTogether: !a.transposed,
    bRowsTogether: !b.transposed,
    finish: `${target} = ${typeD.store(activationExpression(activation, `(${terms.join(' + ')})`, sum))}`,
  };
}

/**
 * A product whose factors are C expressions: elements that are dequantised, or picked from an image, while they are
 * read.
 */
export interface ComputedProduct {
  readonly hint: string;
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly planes: number;
  /** C type that is added up in. */
  readonly sum: string;
  readonly parameters: readonly Parameter[];
  /** Over plane, row and depth. */
  readonly a: string;
  /** Over plane, depth and column. */
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

/** The kernel of a product, and how many blocks of how many threads it takes. */
export function kernelOf(product: ComputedProduct): { source: string; blocks: number; threads: number } {
  const { rows, columns, depth, planes, sum, parameters, a, b, aRowsTogether, bRowsTogether, finish } = product;
  // Larger tiles read each operand less often; small products would leave most of such a tile empty.
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

/** What a sum of nothing leaves: the bias through the activation, added to what is there. */
function emitEmptySum(emitter: Emitter, product: Placed): void {
  const { rows, columns, batch, d, bias, activation = 'none', accumulate = false } = product;
  const sum = accumulatorOf(d.kept);
  const at = weightedSum(coordinates('i', [...batch, rows, columns]), [...d.batchStrides, d.leading, 1]);
  const tensors = {
    bias: bias && { buffer: bias, kept: d.kept },
    output: accumulate ? changed(d) : written(d),
  };
  forEachElement(emitter, 'empty_product', rows * columns * productOf(batch), tensors, (of) => {
    const terms = [...(of.bias ? [of.bias.at(`i % ${columns}u`)] : []), ...(accumulate ? [of.output.at(at)] : [])];
    return [
      `const ${sum} y = ${terms.join(' + ') || '0'};`,
      of.output.set(at, activationExpression(activation, 'y', sum)),
    ];
  });
}
