/** MatMul, Gemm, and `turntable.Product`, which fusion makes of them. */
import type { DataType } from '../../../tensor/index.ts';
import { elementOf, reader } from '../common/element.ts';
import { broadcastIndex, broadcastStrides, product as productOf } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { forEachIndex } from '../common/launching.ts';
import { Unsupported, type Buffer, type Emitter, type Operator, type Value } from '../types.ts';
import { emitProduct, floatText, requireProductType, type Activation, type Factor } from './product.ts';

interface Matrices {
  readonly rows: number;
  readonly columns: number;
  readonly batch: readonly number[];
  readonly transposed: boolean;
  readonly value: Value;
}

/** The last two dimensions as a matrix, after a transpose where one is asked for; those before are the batch. */
function matricesOf(value: Value, shape: readonly number[], transposed: boolean): Matrices {
  const [outer, inner] = [shape.at(-2)!, shape.at(-1)!];
  const [rows, columns] = transposed ? [inner, outer] : [outer, inner];
  return { rows, columns, batch: shape.slice(0, -2), transposed, value };
}

/** numpy's broadcasting of two shapes. @throws Unsupported where they do not fit */
export function broadcastShapes(a: readonly number[], b: readonly number[]): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, axis) => {
    const left = a[axis - rank + a.length] ?? 1;
    const right = b[axis - rank + b.length] ?? 1;
    if (left !== right && left !== 1 && right !== 1) {
      throw new Unsupported(`batches of shape [${a.join(',')}] and [${b.join(',')}] do not fit together`);
    }
    return left === 1 ? right : left;
  });
}

function factorOf({ value, rows, columns, batch: own, transposed }: Matrices, batch: readonly number[]): Factor {
  return {
    buffer: value.buffer,
    type: value.kept,
    transposed,
    // A row of no elements still has to be a step that the library accepts.
    leading: Math.max(1, transposed ? rows : columns),
    batchStrides: broadcastStrides(own, batch).map((stride) => stride * rows * columns),
  };
}

interface Options {
  readonly transA: boolean;
  readonly transB: boolean;
  readonly alpha: number;
  readonly bias: Value | undefined;
  readonly activation: Activation;
}

/** numpy.matmul of two values: vectors become matrices of one row or column. */
function emitMatmul(emitter: Emitter, a: Value, b: Value, output: Value, options: Options): void {
  if (a.shape.length === 0 || b.shape.length === 0) throw new Unsupported('a product of a scalar');
  for (const value of [a, b]) requireProductType(value);
  const left = matricesOf(a, a.shape.length === 1 ? [1, ...a.shape] : a.shape, options.transA && a.shape.length > 1);
  const right = matricesOf(b, b.shape.length === 1 ? [...b.shape, 1] : b.shape, options.transB && b.shape.length > 1);
  if (left.columns !== right.rows) {
    const shapes = `[${a.shape.join(',')}] and [${b.shape.join(',')}]`;
    throw new Unsupported(`matrices of shape ${shapes} do not fit together`);
  }
  const batch = broadcastShapes(left.batch, right.batch);
  emitProduct(emitter, {
    rows: left.rows,
    columns: right.columns,
    depth: left.columns,
    batch,
    a: factorOf(left, batch),
    b: factorOf(right, batch),
    d: { buffer: output.buffer, type: output.datatype },
    alpha: options.alpha,
    bias: options.bias === undefined ? undefined : biasOf(emitter, options.bias, output.datatype, right.columns),
    activation: options.activation,
  });
}

/** A bias of n values in the type of the output. */
function biasOf(emitter: Emitter, bias: Value, type: DataType, columns: number): Buffer {
  if (bias.elements === columns && bias.kept === type) return bias.buffer;
  if (bias.elements !== 1 && bias.elements !== columns) {
    throw new Unsupported(`its bias '${bias.name}' has ${bias.elements} values for ${columns} columns`);
  }
  const element = elementOf(type);
  const { stored, load } = reader(bias);
  const spread = emitter.scratch(columns * (type === 'FP64' ? 8 : type === 'FP32' ? 4 : 2));
  forEachIndex(
    emitter,
    'bias',
    columns,
    [
      { name: 'input', type: stored, buffer: bias.buffer },
      { name: 'output', type: element.stored, buffer: spread, access: 'write' },
    ],
    `output[i] = ${element.store(load(bias.elements === 1 ? 'input[0]' : 'input[i]'))};`,
  );
  return spread;
}

const matmul: Operator = {
  type: 'MatMul',
  emit(emitter) {
    emitMatmul(emitter, emitter.required(0), emitter.required(1), requiredOutput(emitter), {
      transA: false,
      transB: false,
      alpha: 1,
      bias: undefined,
      activation: 'none',
    });
  },
};

const activations: readonly Activation[] = ['none', 'relu', 'gelu-tanh'];

/** Made by fusion: A, B and perhaps a bias of n values; attributes transA, transB, alpha, activation. */
const fusedProduct: Operator = {
  type: 'turntable.Product',
  emit(emitter) {
    const name = emitter.attribute('activation', 'none');
    const activation = activations.find((known) => known === name);
    if (activation === undefined) throw new Unsupported(`a product with the activation '${name}'`);
    emitMatmul(emitter, emitter.required(0), emitter.required(1), requiredOutput(emitter), {
      transA: emitter.attribute('transA', 0) === 1,
      transB: emitter.attribute('transB', 0) === 1,
      alpha: emitter.attribute('alpha', 1),
      bias: emitter.input(2),
      activation,
    });
  },
};

const gemm: Operator = {
  type: 'Gemm',
  emit(emitter) {
    const [a, b, c] = [emitter.required(0), emitter.required(1), emitter.input(2)];
    const output = requiredOutput(emitter);
    for (const value of [a, b]) {
      requireProductType(value);
      if (value.shape.length !== 2)
        throw new Unsupported(`'${value.name}' has ${value.shape.length} dimensions, not 2`);
    }
    const left = matricesOf(a, a.shape, emitter.attribute('transA', 0) !== 0);
    const right = matricesOf(b, b.shape, emitter.attribute('transB', 0) !== 0);
    if (left.columns !== right.rows) {
      throw new Unsupported(`matrices of shape [${a.shape.join(',')}] and [${b.shape.join(',')}] do not fit together`);
    }
    const alpha = emitter.attribute('alpha', 1);
    const beta = emitter.attribute('beta', 1);
    const added = beta === 0 ? undefined : c;
    const isBias =
      added !== undefined &&
      beta === 1 &&
      added.kept === output.datatype &&
      added.elements === right.columns &&
      (added.shape.at(-1) ?? 1) === right.columns;
    if (added !== undefined && !isBias) emitAddend(emitter, added, beta, output);
    emitProduct(emitter, {
      rows: left.rows,
      columns: right.columns,
      depth: left.columns,
      batch: [],
      a: factorOf(left, []),
      b: factorOf(right, []),
      d: { buffer: output.buffer, type: output.datatype },
      alpha,
      bias: isBias ? added.buffer : undefined,
      accumulate: added !== undefined && !isBias,
    });
  },
};

/** Puts beta * C, broadcast, where the product is then added. */
function emitAddend(emitter: Emitter, c: Value, beta: number, output: Value): void {
  if (c.shape.length > 2) throw new Unsupported(`its C has ${c.shape.length} dimensions`);
  const element = elementOf(output.datatype);
  const { stored, load } = reader(c);
  const value = load(`c[${broadcastIndex('i', c.shape, output.shape)}]`);
  const scaled = beta === 1 ? value : `(${element.computed})${floatText(beta)} * ${value}`;
  forEachIndex(
    emitter,
    'gemm_addend',
    productOf(output.shape),
    [
      { name: 'c', type: stored, buffer: c.buffer },
      { name: 'output', type: element.stored, buffer: output.buffer, access: 'write' },
    ],
    `output[i] = ${element.store(scaled)};`,
  );
}

export const matmulOperators: readonly Operator[] = [matmul, gemm, fusedProduct];
