/** MatMul, Gemm, and `turntable.Product`, which fusion makes of them. */
import { broadcast, Unsupported, floatLiteral } from '../../../operators/index.ts';
import { elementBytes } from '../../../tensor/index.ts';
import { broadcastIndex, broadcastStrides } from '../common/indexing.ts';
import { convert, requiredOutput, scratchValue } from '../common/inputs.ts';
import type { Buffer, Emitter, Kernels, Value } from '../types.ts';
import { emitProduct, productTypes, type Activation, type Factor } from './product.ts';
import { forEachElement, written } from '../common/elements.ts';

/** A matrix for each item of a batch. */
export type Matrices = ReturnType<typeof matricesOf>;

/** The last two dimensions are the matrix, perhaps transposed; those before are the batch. */
function matricesOf(value: Value, shape: readonly number[], transposed: boolean) {
  const [outer, inner] = [shape.at(-2)!, shape.at(-1)!];
  const [rows, columns] = transposed ? [inner, outer] : [outer, inner];
  return { rows, columns, batch: shape.slice(0, -2), transposed, value };
}

/** numpy's broadcasting of two shapes. @throws Unsupported if they do not fit */
export function broadcastShapes(a: readonly number[], b: readonly number[]): readonly number[] {
  const shape = broadcast([a, b]);
  if (shape !== undefined) return shape;
  throw new Unsupported(`batches of shape [${a.join(',')}] and [${b.join(',')}] do not fit together`);
}

export function factorOf(
  { value, rows, columns, batch: own, transposed }: Matrices,
  batch: readonly number[],
): Required<Factor> {
  return {
    buffer: value.buffer,
    storedType: value.storedType,
    transposed,
    // The library needs a leading dimension of at least 1, even for empty rows.
    leading: Math.max(1, transposed ? rows : columns),
    batchStrides: broadcastStrides(own, batch).map((stride) => stride * rows * columns),
  };
}

/** The operands of numpy.matmul; vectors become matrices of one row or column. */
export function sidesOf(a: Value, b: Value, transA = false, transB = false): { left: Matrices; right: Matrices } {
  if (a.shape.length === 0 || b.shape.length === 0) throw new Unsupported('a product of a scalar');
  const left = matricesOf(a, a.shape.length === 1 ? [1, ...a.shape] : a.shape, transA && a.shape.length > 1);
  const right = matricesOf(b, b.shape.length === 1 ? [...b.shape, 1] : b.shape, transB && b.shape.length > 1);
  if (left.columns !== right.rows) {
    const shapes = `[${a.shape.join(',')}] and [${b.shape.join(',')}]`;
    throw new Unsupported(`matrices of shape ${shapes} do not fit together`);
  }
  return { left, right };
}

/**
 * A product of matrices, with the attributes that the node has of transA, transB, alpha and activation.
 *
 * @param bias one value for each column
 * @param accumulate adds the product to what the output holds
 */
function emitMatmul(emitter: Emitter, bias: Value | undefined, accumulate = false): void {
  const [a, b] = [emitter.required(0, productTypes), emitter.required(1, productTypes)];
  const output = requiredOutput(emitter);
  const { left, right } = sidesOf(a, b, isTransposed(emitter, 'transA'), isTransposed(emitter, 'transB'));
  if (left.columns === 0 && left.batch.join() !== right.batch.join()) {
    throw new Unsupported('ONNX Runtime does not broadcast products over no elements, and leaves them unwritten');
  }
  const batch = broadcastShapes(left.batch, right.batch);
  emitProduct(emitter, {
    rows: left.rows,
    columns: right.columns,
    depth: left.columns,
    batch,
    a: factorOf(left, batch),
    b: factorOf(right, batch),
    d: output,
    alpha: emitter.attribute('alpha', 1),
    activation: activationOf(emitter),
    accumulate,
    bias: bias && (bias.storedType === output.storedType ? bias : convert(emitter, bias, output.storedType)).buffer,
  });
}

const isTransposed = (emitter: Emitter, name: 'transA' | 'transB'): boolean => emitter.attribute(name, 0) !== 0;

const activations: readonly Activation[] = ['none', 'relu', 'gelu-tanh'];

function activationOf(emitter: Emitter): Activation {
  const name = emitter.attribute('activation', 'none');
  const activation = activations.find((known) => known === name);
  if (activation === undefined) throw new Unsupported(`a product with the activation '${name}'`);
  return activation;
}

const plain = { type: 'MatMul', emit: (emitter) => emitMatmul(emitter, undefined) } satisfies Kernels;
/** Made by fusion: A, B and perhaps a bias of n values. */
const fusedProduct = {
  type: 'turntable.Product',
  emit: (emitter) => emitMatmul(emitter, emitter.input(2)),
} satisfies Kernels;

/** The biases of a batch, `stride` elements apart; converted if their type is not that of the output. */
function jointBiases(
  emitter: Emitter,
  bias: Value,
  places: readonly number[],
  output: Value,
): { readonly buffer: Buffer; readonly stride: number } {
  const { buffer, stepBytes } = emitter.weightsTogether(places);
  const stride = stepBytes / elementBytes[bias.storedType];
  if (bias.storedType === output.storedType) return { buffer, stride };
  const columns = bias.elements;
  const spread = scratchValue(emitter, output.storedType, [places.length, columns]);
  const tensors = { input: { buffer, storedType: bias.storedType }, output: written(spread) };
  forEachElement(emitter, 'biases', spread.elements, tensors, (of) =>
    of.output.set('i', of.input.at(`i / ${columns}u * ${stride}u + i % ${columns}u`)),
  );
  return { buffer: spread.buffer, stride: columns };
}

/** Made by fusion: see src/gpu/program/fusion/joint-products.ts. A batch of products, all with the same A. */
const jointProduct = {
  type: 'turntable.JointProduct',
  emit(emitter) {
    const count = emitter.attribute('count', 0);
    const [a, matrix, bias] = [emitter.required(0), emitter.required(1), emitter.input(1 + count)];
    const output = requiredOutput(emitter);
    const places = (first: number): number[] => Array.from({ length: count }, (_, index) => first + index);
    const factors = emitter.weightsTogether(places(1));
    const biases = bias && jointBiases(emitter, bias, places(1 + count), output);
    const results = emitter.outputsTogether();
    const columns = output.shape.at(-1)!;
    const depth = a.shape.at(-1)!;
    const transposed = emitter.attribute('transB', 0) === 1;
    emitProduct(emitter, {
      rows: a.elements / Math.max(1, depth),
      columns,
      depth,
      batch: [count],
      a: { buffer: a.buffer, storedType: a.storedType, leading: depth, batchStrides: [0] },
      b: {
        buffer: factors.buffer,
        storedType: matrix.storedType,
        transposed,
        leading: transposed ? depth : columns,
        batchStrides: [factors.stepBytes / elementBytes[matrix.storedType]],
      },
      d: {
        buffer: results.buffer,
        storedType: output.storedType,
        batchStrides: [results.stepBytes / elementBytes[output.storedType]],
      },
      alpha: emitter.attribute('alpha', 1),
      bias: biases?.buffer,
      biasStride: biases?.stride,
      activation: activationOf(emitter),
    });
  },
} satisfies Kernels;

const gemm = {
  type: 'Gemm',
  emit(emitter) {
    const [a, b] = [emitter.required(0, productTypes), emitter.required(1, productTypes)];
    const c = emitter.input(2);
    const output = requiredOutput(emitter);
    for (const { name, shape } of [a, b]) {
      if (shape.length !== 2) throw new Unsupported(`'${name}' has ${shape.length} dimensions, not 2`);
    }
    const { left, right } = sidesOf(a, b, isTransposed(emitter, 'transA'), isTransposed(emitter, 'transB'));
    const given = emitter.attribute('beta', 1);
    // With a depth of 0 ONNX Runtime returns C without the factor.
    const beta = left.columns === 0 && given !== 0 ? 1 : given;
    const added = beta === 0 ? undefined : c;
    const isBias =
      added !== undefined &&
      beta === 1 &&
      added.storedType === output.storedType &&
      added.elements === right.columns &&
      (added.shape.at(-1) ?? 1) === right.columns;
    const isAddend = added !== undefined && !isBias;
    if (isAddend) emitAddend(emitter, added, beta, output);
    emitMatmul(emitter, isBias ? added : undefined, isAddend);
  },
} satisfies Kernels;

/** Writes beta * C, broadcast, to the output, to which the product is then added. */
function emitAddend(emitter: Emitter, c: Value, beta: number, output: Value): void {
  if (c.shape.length > 2) throw new Unsupported(`its C has ${c.shape.length} dimensions`);
  forEachElement(emitter, 'gemm_addend', output.elements, { c, output: written(output) }, (of) => {
    const value = of.c.at(broadcastIndex('i', c.shape, output.shape));
    return of.output.set('i', beta === 1 ? value : `(${of.output.computed})${floatLiteral(beta, 'double')} * ${value}`);
  });
}

export const matmulOperators = [plain, gemm, fusedProduct, jointProduct] as const satisfies readonly Kernels[];
