/** What attention is made of: heads as they lie in the projections' results, and the products between them. */
import { attributeOf } from '../../../onnx/index.ts';
import type { HeadStrides } from '../../operators/attention/head-product.ts';
import { elementCount } from '../../../tensor/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { isView, otherInput, permOf, sameNumbers } from './patterns.ts';

/** A value [batch, heads, rows, columns], or without a batch, by the place of its heads in another value. */
export interface Heads {
  readonly base: string;
  readonly strides: HeadStrides;
  /** What is stored are the columns: [batch, heads, columns, rows] by these strides. */
  readonly transposed: boolean;
  readonly factor: number;
  /** It lies there as it is: nothing would be saved. */
  readonly dense: boolean;
}

/** The part of a Split along the last axis that a value is, or the value itself. */
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
    // Parts that nobody takes have no shape.
    if (size === undefined) return { base: value, offset: 0, width };
    offset += size;
  }
  return undefined;
}

/** A factor that a value was just multiplied with, for this use alone. */
function unscaled(graph: WorkGraph, value: string): { value: string; factor: number } {
  const producer = graph.producer(value);
  if (producer === undefined || graph.onlyConsumer(value) === undefined) return { value, factor: 1 };
  for (const source of producer.uses) {
    const other = otherInput(producer, source);
    const scalar = other === undefined ? undefined : graph.scalar(other);
    const whole = graph.shape(source)?.join() === graph.shape(value)?.join();
    if (scalar === undefined || !whole || graph.scalar(source) !== undefined) continue;
    if (producer.type === 'Mul') return { value: source, factor: scalar };
    if (producer.type === 'Div' && producer.proto.input[0] === source && scalar !== 0) {
      return { value: source, factor: 1 / scalar };
    }
  }
  return { value, factor: 1 };
}

/** [batch, heads, rows, columns] of a shape that may have no batch. */
export function byHeads(shape: readonly number[] | undefined): [number, number, number, number] | undefined {
  if (shape?.length !== 4 && shape?.length !== 3) return undefined;
  return (shape.length === 4 ? [...shape] : [1, ...shape]) as [number, number, number, number];
}

/** From [batch, heads, rows, columns] to [batch, rows, heads, columns], and back. */
const headsInside = [0, 2, 1, 3];

/** Whether a Transpose does what this permutation says of four axes, or of the last three where it has no batch. */
function permutes(node: WorkNode, order: readonly number[]): boolean {
  const perm = permOf(node);
  return sameNumbers(perm.length === 3 ? [0, ...perm.map((axis) => axis + 1)] : perm, order);
}

/** Where a product [batch, heads, m, n] goes: through a transpose that alone takes it, or as it is. */
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
  // [batch, sequence, heads, size], by way of views [batch, sequence, heads x size]
  let source = producer.proto.input[0]!;
  const [batch, sequence, , size] = byHeads(graph.shape(source))!;
  for (let before = graph.producer(source); before !== undefined && isView(before); before = graph.producer(source)) {
    source = before.proto.input[0]!;
  }
  const merged = graph.shape(source);
  const plain = [0, heads * size, size, sequence * heads * size] as const;
  const part = merged?.at(-1) === heads * size ? unsplit(graph, source) : undefined;
  if (part === undefined || elementCount(merged!) !== batch * sequence * heads * size) {
    return { base: source, strides: plain, transposed, factor, dense: false };
  }
  const { base, offset, width } = part;
  return { base, strides: [offset, width, size, sequence * width], transposed, factor, dense: false };
}

export interface HeadFactors {
  readonly a: string;
  readonly b: string;
  readonly transB: boolean;
  readonly alpha: number;
}

/** A product without a bias, an activation, or a transposed A. */
export function factorsOf({ type, proto }: WorkNode): HeadFactors | undefined {
  const [a, b] = proto.input;
  if (a === undefined || b === undefined || proto.input.length !== 2) return undefined;
  if (type === 'MatMul') return { a, b, transB: false, alpha: 1 };
  if (type !== 'turntable.Product') return undefined;
  if (attributeOf<number>(proto, 'transA', 0) === 1) return undefined;
  if (attributeOf<string>(proto, 'activation', 'none') !== 'none') return undefined;
  return {
    a,
    b,
    transB: attributeOf<number>(proto, 'transB', 0) === 1,
    alpha: attributeOf<number>(proto, 'alpha', 1),
  };
}
