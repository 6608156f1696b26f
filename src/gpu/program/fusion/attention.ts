/**
 * Removes the four transposes around attention's products. A head of [batch, sequence, heads x size] is a matrix whose
 * rows are heads x size elements apart, which a product reads and writes as fast as a dense one.
 */
import type { HeadStrides } from '../../operators/attention/head-product.ts';
import type { AttributeValue } from '../../../onnx/index.ts';
import { elementCount } from '../../../tensor/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { headsOf, plainProduct, resultOf } from './heads.ts';
import { hasProductTypes, sameNumbers } from './patterns.ts';

/** For larger batches, transposing once is faster. */
const batchMax = 8;

/** Operands must start at a multiple of 16 bytes; strides within a matrix may be odd, since the library sees them. */
function isAligned(graph: WorkGraph, value: string, [offset, , , perBatch]: HeadStrides, batch: number): boolean {
  const multiple = graph.values.get(value)?.datatype === 'FP32' ? 4 : 8;
  return offset % multiple === 0 && (batch === 1 || perBatch % multiple === 0);
}

function fuseProduct(graph: WorkGraph, node: WorkNode): void {
  const product = plainProduct(node);
  const shape = graph.shape(product?.output ?? '');
  if (product === undefined || shape?.length !== 4) return;
  const { output } = product;
  if (!hasProductTypes(graph, [product.a, product.b, output])) return;
  const [batch, heads, m, n] = shape as [number, number, number, number];
  if (batch > batchMax || elementCount(shape) === 0) return;
  // Broadcast heads are not a strided batch.
  const same = (value: string): boolean => sameNumbers(graph.shape(value)?.slice(0, 2), [batch, heads]);
  if (!same(product.a) || !same(product.b)) return;
  const [a, b] = [headsOf(graph, product.a), headsOf(graph, product.b)];
  if (a === undefined || b === undefined || a.transposed) return;

  const { result, strides: d, transpose } = resultOf(graph, output);
  const nodes = [node, ...transpose];
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
  const attributes: Record<string, AttributeValue> = {
    ...sizes,
    alpha: { float: product.alpha * a.factor * b.factor },
    a: a.strides,
    b: b.strides,
    d: d,
  };
  graph.replace(nodes, { type: 'turntable.HeadProduct', inputs: [a.base, b.base], outputs: [result], attributes });
}

/** Transposes and splits that no node reads any more are removed by the sweep after this pass. */
export function fuseAttention(graph: WorkGraph): void {
  for (const node of graph.nodes) if (graph.has(node)) fuseProduct(graph, node);
}
