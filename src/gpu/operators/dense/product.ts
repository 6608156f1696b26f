/**
 * Matrix products of every form: by cuBLASLt wherever it can, by a kernel of our own elsewhere (64-bit and whole numbers, batches
 * without one stride, and everything where the settings say so).
 */
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import type { MatmulEpilogue, MatmulType } from '../../driver/types.ts';
import { accumulatorOf, elementOf } from '../common/element.ts';
import { collapse, coordinates, product as productOf, stridesOf, weightedSum } from '../common/indexing.ts';
import { kernelFrom } from '../common/kernel-file.ts';
import { forEachIndex, read } from '../common/launching.ts';
import { Unsupported, type Buffer, type Emitter, type Value } from '../types.ts';

export type Activation = 'none' | 'relu' | 'gelu-tanh';

/** One factor of a product: matrices in row-major order, by batch. */
export interface Factor {
  readonly buffer: Buffer;
  /** The type of its bytes. */
  readonly type: DataType;
  /** Stored as [columns, rows]. */
  readonly transposed: boolean;
  /** Elements from one stored row to the next. */
  readonly leading: number;
  /** Elements from one item to the next, for each dimension of the batch; 0 where all share it. */
  readonly batchStrides: readonly number[];
}

/** D[batch, rows, columns] = activation(alpha x A x B + bias), or that added to D. D is contiguous. */
export interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly batch: readonly number[];
  readonly a: Factor;
  readonly b: Factor;
  readonly d: { readonly buffer: Buffer; readonly type: DataType };
  readonly alpha?: number;
  /** One value for each column, of D's type. */
  readonly bias?: Buffer | undefined;
  readonly activation?: Activation;
  /** D holds what is added to. */
  readonly accumulate?: boolean;
}

const libraryTypes: Partial<Record<DataType, MatmulType>> = { FP32: 'f32', FP16: 'f16', BF16: 'bf16' };

/** Types that products are made of. */
export const productTypes: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64', 'UINT32', 'UINT64'];

/** More calls of the library than this cost more than a slower kernel. */
const callsMax = 64;

export function emitProduct(emitter: Emitter, product: Product): void {
  const { rows, columns, depth, batch, d } = product;
  if (rows * columns * productOf(batch) === 0) return;
  if (depth === 0) {
    emitEmptySum(emitter, product);
    return;
  }
  const joined = joinBatch(withOneType(emitter, product));
  const type = libraryTypes[joined.a.type];
  const typeD = libraryTypes[d.type];
  const [outer, calls] = splitBatch(joined);
  const byLibrary =
    emitter.settings.products !== 'own' &&
    type !== undefined &&
    typeD !== undefined &&
    joined.b.type === joined.a.type &&
    (typeD === type || typeD === 'f32') &&
    calls <= callsMax;
  if (byLibrary) emitLibraryCalls(emitter, joined, outer, type, typeD);
  else emitOwnKernel(emitter, joined);
}

/** Both factors in one type: the narrower of the two, to which the other is converted in scratch memory. */
function withOneType(emitter: Emitter, product: Product): Product {
  const { a, b } = product;
  if (a.type === b.type || emitter.settings.products === 'own') return product;
  if (libraryTypes[a.type] === undefined || libraryTypes[b.type] === undefined) return product;
  return elementBytes[a.type] > elementBytes[b.type]
    ? { ...product, a: { ...a, buffer: convert(emitter, a.buffer, a.type, b.type), type: b.type } }
    : { ...product, b: { ...b, buffer: convert(emitter, b.buffer, b.type, a.type), type: a.type } };
}

/** The same elements in another type, in scratch memory. */
export function convert(emitter: Emitter, buffer: Buffer, from: DataType, to: DataType): Buffer {
  const count = buffer.bytes / elementBytes[from];
  const converted = emitter.scratch(count * elementBytes[to]);
  const source = elementOf(from);
  const target = elementOf(to);
  forEachIndex(
    emitter,
    'convert',
    count,
    [
      { name: 'input', type: source.stored, buffer },
      { name: 'output', type: target.stored, buffer: converted, access: 'write' },
    ],
    `output[i] = ${target.store(source.load('input[i]'))};`,
  );
  return converted;
}

/** The fewest dimensions of the batch; none where the items of A lie one after the other and share B: then they are more rows. */
function joinBatch(product: Product): Product {
  const { a, b, rows, depth } = product;
  const dimensions = collapse(product.batch, a.batchStrides, b.batchStrides);
  const [only] = dimensions;
  const [stepA, stepB] = only?.steps ?? [];
  const areRows =
    dimensions.length === 1 && !a.transposed && a.leading === depth && stepA === rows * depth && stepB === 0;
  const left = areRows ? [] : dimensions;
  return {
    ...product,
    rows: areRows ? rows * only!.size : rows,
    batch: left.map(({ size }) => size),
    a: { ...a, batchStrides: left.map(({ steps }) => steps[0]!) },
    b: { ...b, batchStrides: left.map(({ steps }) => steps[1]!) },
  };
}

/** The dimension of the batch that one call does, and how many calls that makes. */
function splitBatch({ batch }: Product): [axis: number, calls: number] {
  const axis = batch.indexOf(Math.max(...batch));
  return [axis, axis === -1 ? 1 : productOf(batch) / batch[axis]!];
}

function emitLibraryCalls(emitter: Emitter, product: Product, axis: number, type: MatmulType, typeD: MatmulType): void {
  const { rows, columns, depth, batch, a, b, d, bias, alpha = 1, activation = 'none', accumulate = false } = product;
  const strides = stridesOf(batch).map((stride) => stride * rows * columns);
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
    ldd: columns,
    strideA: strideOf(a.batchStrides),
    strideB: strideOf(b.batchStrides),
    strideD: strideOf(strides),
    typeA: type,
    typeB: type,
    typeD,
    alpha,
    beta: accumulate ? 1 : 0,
    epilogue: epilogueOf(activation, bias !== undefined),
  };
  for (let call = 0; call < productOf(others); call++) {
    const place = indicesOf(call, others);
    const at = (buffer: Buffer, bytes: number, of: readonly number[], extent: number): Buffer => {
      let start = 0;
      for (const [index, coordinate] of place.entries()) start += coordinate * of[index]!;
      return emitter.part(buffer, start * bytes, extent * bytes);
    };
    emitter.matmul(description, {
      a: at(a.buffer, elementBytes[a.type], a.batchStrides, extentOf(a, rows, depth, description.strideA, size)),
      b: at(b.buffer, elementBytes[b.type], b.batchStrides, extentOf(b, depth, columns, description.strideB, size)),
      d: at(d.buffer, elementBytes[d.type], strides, description.strideD * (size - 1) + rows * columns),
      ...(bias === undefined ? {} : { bias }),
    });
  }
}

/** Elements that a call reads of a factor. */
function extentOf(factor: Factor, rows: number, columns: number, stride: number, items: number): number {
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

function emitOwnKernel(emitter: Emitter, product: Product): void {
  const { rows, columns, depth, batch, a, b, d, bias, alpha = 1, activation = 'none', accumulate = false } = product;
  const sum = accumulatorOf(d.type);
  const isFloat = sum === 'float' || sum === 'double';
  if (!isFloat && (alpha !== 1 || activation !== 'none')) {
    throw new Unsupported(`a product of ${d.type} with a factor or an activation`);
  }
  const [typeA, typeB, typeD] = [elementOf(a.type), elementOf(b.type), elementOf(d.type)];
  const loaded = (value: string): string => `((${sum})(${value}))`;
  const plane = coordinates('plane', batch);
  const place = (factor: Factor, row: string, column: string): string => {
    const [outer, inner] = factor.transposed ? [column, row] : [row, column];
    const start = weightedSum(plane, factor.batchStrides);
    return `((u64)(${start}) + (u64)(${outer}) * ${factor.leading} + (${inner}))`;
  };
  const scaled = alpha === 1 ? 'x' : `(${sum})${floatText(alpha)} * x`;
  const terms = [
    scaled,
    ...(bias === undefined ? [] : [typeD.load('bias[column]')]),
    ...(accumulate ? [typeD.load('(*place)')] : []),
  ];
  // Larger tiles read each operand less often; small products would leave most of such a tile empty.
  const tile = rows > 32 && columns > 32 ? 64 : 32;
  const kernel = emitter.kernel(
    'product',
    kernelFrom('product', {
      TYPE_A: typeA.stored,
      TYPE_B: typeB.stored,
      TYPE_D: typeD.stored,
      SUM: sum,
      'LOAD_A(x)': loaded(typeA.load('x')),
      'LOAD_B(x)': loaded(typeB.load('x')),
      'FINISH(x, column, place)': typeD.store(activationExpression(activation, `(${terms.join(' + ')})`, sum)),
      ROWS: `${rows}u`,
      COLUMNS: `${columns}u`,
      DEPTH: `${depth}u`,
      'A_AT(plane, row, depth)': place(a, '(row)', '(depth)'),
      'B_AT(plane, depth, column)': place(b, '(depth)', '(column)'),
      'D_AT(plane, row, column)': `((u64)(plane) * ${rows * columns} + (u64)(row) * ${columns} + (column))`,
      A_ROWS_TOGETHER: a.transposed ? 0 : 1,
      B_ROWS_TOGETHER: b.transposed ? 0 : 1,
      BIAS: bias === undefined ? '' : `const ${typeD.stored}* bias,`,
      TILE: `${tile}u`,
    }),
  );
  const tiles = Math.ceil(rows / tile) * Math.ceil(columns / tile);
  emitter.launch({
    kernel,
    grid: [tiles * productOf(batch)],
    block: [(tile / 4) ** 2],
    arguments: [
      read(a.buffer),
      read(b.buffer),
      ...(bias === undefined ? [] : [read(bias)]),
      { type: accumulate ? 'read-write' : 'write', buffer: d.buffer },
    ],
  });
}

/** What a sum of nothing leaves: the bias through the activation, added to what is there. */
function emitEmptySum(emitter: Emitter, product: Product): void {
  const { rows, columns, batch, d, bias, activation = 'none', accumulate = false } = product;
  const element = elementOf(d.type);
  const sum = accumulatorOf(d.type);
  const terms = [
    ...(bias === undefined ? [] : [element.load(`bias[i % ${columns}u]`)]),
    ...(accumulate ? [element.load('output[i]')] : []),
  ];
  forEachIndex(
    emitter,
    'empty_product',
    rows * columns * productOf(batch),
    [
      ...(bias === undefined ? [] : [{ name: 'bias', type: element.stored, buffer: bias }]),
      { name: 'output', type: element.stored, buffer: d.buffer, access: accumulate ? 'read-write' : 'write' },
    ],
    [
      `const ${sum} y = ${terms.length === 0 ? '0' : terms.join(' + ')};`,
      `output[i] = ${element.store(activationExpression(activation, 'y', sum))};`,
    ].join('\n'),
  );
}

/** A C literal of a float or double. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return 'F32_NAN';
  if (!Number.isFinite(value)) return value < 0 ? '(-F32_INFINITY)' : 'F32_INFINITY';
  const text = String(value);
  const literal = /[.e]/.test(text) ? text : `${text}.0`;
  return value < 0 || Object.is(value, -0) ? `(${literal})` : literal;
}

/** @throws Unsupported unless a value's type can be multiplied */
export function requireProductType(value: Value): void {
  if (!productTypes.includes(value.datatype)) {
    throw new Unsupported(`'${value.name}' is ${value.datatype}, but products are of ${productTypes.join(', ')} only`);
  }
}
