/** Patterns that several fusions look for. */
import { attributeOf, attributeReader } from '../../../onnx/index.ts';
import { kernelFacts } from '../../../operators/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';

export const isView = ({ type }: WorkNode): boolean => kernelFacts(type)?.keeps === 'bytes';

/** The value behind views of it. */
export function rootOf(graph: WorkGraph, value: string): string {
  let root = value;
  for (let node = graph.producer(root); node !== undefined && isView(node); node = graph.producer(root)) {
    root = node.proto.input[0]!;
  }
  return root;
}

/** Datatypes of matrix products. */
const productTypes = new Set<DataType>(['FP32', 'FP16', 'BF16']);

export function hasProductTypes(graph: WorkGraph, values: readonly string[]): boolean {
  return values.every((value) => productTypes.has(graph.values.get(value)?.datatype ?? 'BYTES'));
}

export const sameShape = (graph: WorkGraph, a: string, b: string): boolean =>
  graph.shape(a) !== undefined && graph.shape(a)?.join() === graph.shape(b)?.join();

/** A matrix product with its operands and attributes. */
export interface ProductNode {
  readonly a: string;
  readonly b: string;
  readonly bias: string | undefined;
  readonly beta: number;
  readonly transA: boolean;
  readonly transB: boolean;
  readonly alpha: number;
  readonly activation: string;
  readonly output: string;
}

export function productOf({ type, proto, outputs }: WorkNode): ProductNode | undefined {
  const [a, b, third = ''] = proto.input;
  const [output] = outputs;
  if (kernelFacts(type)?.matrices === undefined || a === undefined || b === undefined || output === undefined)
    return undefined;
  return {
    a,
    b,
    bias: third === '' ? undefined : third,
    beta: attributeOf(proto, 'beta', 1),
    transA: attributeOf(proto, 'transA', 0) !== 0,
    transB: attributeOf(proto, 'transB', 0) !== 0,
    alpha: attributeOf(proto, 'alpha', 1),
    activation: attributeOf(proto, 'activation', 'none'),
    output,
  };
}

/** Whether a product has no bias, or one value for each column without a factor. */
export const hasPlainBias = (graph: WorkGraph, { bias, beta, output }: ProductNode): boolean =>
  bias === undefined ||
  (beta === 1 && isRowVector(graph.shape(bias), graph.shape(output)?.at(-1) ?? 0) && hasProductTypes(graph, [bias]));

/** The value before a multiplication by a constant, if nothing else reads the product; `node` is the multiplication. */
export function unscaled(
  graph: WorkGraph,
  value: string,
): { readonly value: string; readonly factor: number; readonly node?: WorkNode } {
  const node = graph.producer(value);
  if (node === undefined || graph.onlyConsumer(value) === undefined) return { value, factor: 1 };
  for (const source of node.uses) {
    const other = otherInput(node, source);
    const scalar = other === undefined ? undefined : graph.scalar(other);
    if (scalar === undefined || !sameShape(graph, source, value) || graph.scalar(source) !== undefined) continue;
    if (node.type === 'Mul') return { value: source, factor: scalar, node };
    if (node.type === 'Div' && node.proto.input[0] === source && scalar !== 0) {
      return { value: source, factor: 1 / scalar, node };
    }
  }
  return { value, factor: 1 };
}

/** Whether a Softmax or MaskedSoftmax is along the last axis. */
export function isOfRows(graph: WorkGraph, { type, proto }: WorkNode): boolean {
  const rank = graph.shape(proto.input[0] ?? '')?.length ?? 0;
  const axis = attributeOf<number>(proto, 'axis', type === 'Softmax' && graph.opset < 13 ? 1 : -1);
  return axis === -1 || axis === rank - 1;
}

/** The other operand of a node with two; undefined if both are the same. */
export function otherInput({ proto }: WorkNode, value: string): string | undefined {
  const [a, b] = proto.input;
  if (proto.input.length !== 2 || a === b) return undefined;
  return a === value ? b : b === value ? a : undefined;
}

export const permOf = ({ proto }: WorkNode): readonly number[] => attributeOf<readonly number[]>(proto, 'perm', []);

export const sameNumbers = (a: readonly number[] | undefined, b: readonly number[] | undefined): boolean =>
  a !== undefined && b !== undefined && a.length === b.length && a.every((value, index) => value === b[index]);

/** The activation of a product's kernel that does the same as a node. */
export const activationOf = ({ type, proto }: WorkNode): 'relu' | 'gelu-tanh' | undefined =>
  kernelFacts(type)?.activation?.(attributeReader(proto));

/** Whether a permutation swaps the last two axes and nothing else. An empty one reverses all axes, as in ONNX. */
export function swapsLastTwo(perm: readonly number[], rank: number): boolean {
  if (rank < 2) return false;
  const order = perm.length === 0 ? Array.from({ length: rank }, (_, axis) => rank - 1 - axis) : perm;
  return order.every((axis, place) => axis === (place < rank - 2 ? place : place === rank - 2 ? rank - 1 : rank - 2));
}

/** Whether a shape is [n], [1,n], [1,1,n], ... */
export function isRowVector(shape: readonly number[] | undefined, n: number): boolean {
  return shape !== undefined && shape.at(-1) === n && shape.slice(0, -1).every((size) => size === 1);
}
