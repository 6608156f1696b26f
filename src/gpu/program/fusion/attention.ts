/**
 * Attention's two products without its four transposes: a head of [batch, sequence, heads x size] is a matrix whose
 * rows are one projection apart, which a product reads and writes as well as a dense one. See operators/attention.
 */
import type { HeadStrides } from '../../operators/attention/head-product.ts';
import { elementCount } from '../../../tensor/index.ts';
import { attributeOf } from '../node-attributes.ts';
import type { MadeAttribute, WorkGraph, WorkNode } from '../work-graph.ts';
import { hasProductTypes, isView, otherInput, permOf, sameNumbers } from './patterns.ts';

/** More batch items than this are better served by transposing once. */
const batchMax = 8;

/** A value [batch, heads, rows, columns] by the place of its heads in another value. */
interface Heads {
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

function headsOf(graph: WorkGraph, given: string): Heads | undefined {
  const { value, factor } = unscaled(graph, given);
  const shape = graph.shape(value);
  if (shape?.length !== 4) return undefined;
  const [, heads, rows, columns] = shape as [number, number, number, number];
  const dense: Heads = {
    base: value,
    strides: [0, columns, rows * columns, heads * rows * columns],
    transposed: false,
    factor,
    dense: true,
  };
  const producer = graph.producer(value);
  if (producer?.type !== 'Transpose') return dense;
  const perm = permOf(producer);
  const transposed = sameNumbers(perm, [0, 2, 3, 1]);
  if (!transposed && !sameNumbers(perm, [0, 2, 1, 3])) return dense;
  // [batch, sequence, heads, size], by way of views [batch, sequence, heads x size]
  let source = producer.proto.input[0]!;
  const [batch, sequence, , size] = graph.shape(source) as [number, number, number, number];
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

/**
 * Products are promised operands that start at 16 bytes; what is odd within them, the library sees from the strides.
 */
function isAligned(graph: WorkGraph, value: string, [offset, , , perBatch]: HeadStrides, batch: number): boolean {
  const multiple = graph.values.get(value)?.datatype === 'FP32' ? 4 : 8;
  return offset % multiple === 0 && (batch === 1 || perBatch % multiple === 0);
}

interface Product {
  readonly a: string;
  readonly b: string;
  readonly transB: boolean;
  readonly alpha: number;
}

function productOf({ type, proto }: WorkNode): Product | undefined {
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

function fuseProduct(graph: WorkGraph, node: WorkNode): void {
  const product = productOf(node);
  const output = node.outputs[0];
  const shape = graph.shape(output ?? '');
  if (product === undefined || output === undefined || shape?.length !== 4) return;
  if (!hasProductTypes(graph, [product.a, product.b, output])) return;
  const [batch, heads, m, n] = shape as [number, number, number, number];
  if (batch > batchMax || elementCount(shape) === 0) return;
  // Broadcast heads are no strided batch of their own.
  const same = (value: string): boolean => sameNumbers(graph.shape(value)?.slice(0, 2), [batch, heads]);
  if (!same(product.a) || !same(product.b)) return;
  const [a, b] = [headsOf(graph, product.a), headsOf(graph, product.b)];
  if (a === undefined || b === undefined || a.transposed) return;

  let result = output;
  let d: HeadStrides = [0, n, m * n, heads * m * n];
  const nodes = [node];
  const user = graph.onlyConsumer(output);
  if (user?.type === 'Transpose' && sameNumbers(permOf(user), [0, 2, 1, 3])) {
    result = user.outputs[0]!;
    d = [0, heads * n, n, m * heads * n];
    nodes.push(user);
  }
  if (a.dense && b.dense && nodes.length === 1) return;
  const aligned = isAligned(graph, a.base, a.strides, batch) && isAligned(graph, b.base, b.strides, batch);
  if (!aligned || !isAligned(graph, result, d, batch)) return;
  const sizes = {
    m,
    n,
    k: graph.shape(product.a)!.at(-1)!,
    heads,
    batch,
    transB: Number(b.transposed !== product.transB),
  };
  const attributes: Record<string, MadeAttribute> = {
    ...sizes,
    alpha: { float: product.alpha * a.factor * b.factor },
    a: { ints: a.strides },
    b: { ints: b.strides },
    d: { ints: d },
  };
  graph.replace(nodes, { type: 'turntable.HeadProduct', inputs: [a.base, b.base], outputs: [result], attributes });
}

/**
 * What is no longer taken (transposes, splits) is left out by the compiler, as everything is that reaches no output.
 */
export function fuseAttention(graph: WorkGraph): void {
  for (const node of graph.nodes) if (graph.has(node)) fuseProduct(graph, node);
}
