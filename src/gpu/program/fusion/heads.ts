/** Finds the heads of attention inside the projections' results, and the products between them. */
import { attributeOf } from '../../../onnx/index.ts';
import type { HeadStrides } from '../../operators/attention/head-product.ts';
import { elementCount } from '../../../tensor/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { permOf, productOf, rootOf, sameNumbers, unscaled, type ProductNode } from './patterns.ts';

/** A value [batch, heads, rows, columns] or [heads, rows, columns], as strides into another value. */
export interface Heads {
  readonly base: string;
  readonly strides: HeadStrides;
  /** The strides are those of [batch, heads, columns, rows]. */
  readonly transposed: boolean;
  readonly factor: number;
  /** `base` is the value itself, so reading it by strides saves nothing. */
  readonly dense: boolean;
}

/** If a value is a part of a Split along the last axis, its place in the Split's input; else the value itself. */
function unsplit(graph: WorkGraph, value: string): { base: string; offset: number; width: number } | undefined {
  const shape = graph.shape(value);
  const width = shape?.at(-1);
  if (shape === undefined || width === undefined) return undefined;
  const producer = graph.producer(value);
  const data = producer?.proto.input[0];
  if (producer?.type !== 'Split' || data === undefined) return { base: value, offset: 0, width };
  const axis = attributeOf<number>(producer.proto, 'axis', 0);
  if (axis !== shape.length - 1 && axis !== -1) return { base: value, offset: 0, width };
  let offset = 0;
  for (const output of producer.proto.output) {
    if (output === value) return { base: data, offset, width: graph.shape(data)?.at(-1) ?? 0 };
    const size = graph.shape(output)?.at(-1);
    // Parts that no node reads have no shape.
    if (size === undefined) return { base: value, offset: 0, width };
    offset += size;
  }
  return undefined;
}

/** [batch, heads, rows, columns] of a shape that may have no batch. */
export function byHeads(shape: readonly number[] | undefined): [number, number, number, number] | undefined {
  if (shape?.length !== 4 && shape?.length !== 3) return undefined;
  return (shape.length === 4 ? [...shape] : [1, ...shape]) as [number, number, number, number];
}

/** From [batch, heads, rows, columns] to [batch, rows, heads, columns], and back. */
const headsInside = [0, 2, 1, 3];

/** Whether a Transpose has this permutation of four axes, or without a batch that of the last three. */
function permutes(node: WorkNode, order: readonly number[]): boolean {
  const perm = permOf(node);
  return sameNumbers(perm.length === 3 ? [0, ...perm.map((axis) => axis + 1)] : perm, order);
}

/**
 * Where a product [batch, heads, m, n] is written: to the result of a transpose, if only that reads it, else as it is.
 */
export function resultOf(
  graph: WorkGraph,
  value: string,
): { readonly result: string; readonly strides: HeadStrides; readonly transpose: readonly WorkNode[] } {
  const [, heads, m, n] = byHeads(graph.shape(value))!;
  const user = graph.onlyConsumer(value);
  if (user?.type === 'Transpose' && permutes(user, headsInside)) {
    return { result: user.outputs[0]!, strides: [0, heads * n, n, m * heads * n], transpose: [user] };
  }
  return { result: value, strides: [0, n, m * n, heads * m * n], transpose: [] };
}

export function headsOf(graph: WorkGraph, given: string): Heads | undefined {
  const { value, factor } = unscaled(graph, given);
  const sizes = byHeads(graph.shape(value));
  if (sizes === undefined) return undefined;
  const [, heads, rows, columns] = sizes;
  const dense: Heads = {
    base: value,
    strides: [0, columns, rows * columns, heads * rows * columns],
    transposed: false,
    factor,
    dense: true,
  };
  const producer = graph.producer(value);
  if (producer?.type !== 'Transpose') return dense;
  const transposed = permutes(producer, [0, 2, 3, 1]);
  if (!transposed && !permutes(producer, headsInside)) return dense;
  // [batch, sequence, heads, size], behind views of [batch, sequence, heads x size].
  const apart = producer.proto.input[0]!;
  const [batch, sequence, , size] = byHeads(graph.shape(apart))!;
  const source = rootOf(graph, apart);
  const merged = graph.shape(source);
  const plain = [0, heads * size, size, sequence * heads * size] as const;
  const part = merged?.at(-1) === heads * size ? unsplit(graph, source) : undefined;
  if (part === undefined || elementCount(merged!) !== batch * sequence * heads * size) {
    return { base: source, strides: plain, transposed, factor, dense: false };
  }
  const { base, offset, width } = part;
  return { base, strides: [offset, width, size, sequence * width], transposed, factor, dense: false };
}

/** A product without a bias, an activation, or a transposed A. */
export function plainProduct(node: WorkNode): ProductNode | undefined {
  const product = productOf(node);
  const isPlain = product?.bias === undefined && product?.transA !== true && product?.activation === 'none';
  return isPlain ? product : undefined;
}
