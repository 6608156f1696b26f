/**
 * Fuses attention into one kernel, `turntable.Attention`:
 *
 *     MatMul(Q, K^T) > Softmax or turntable.MaskedSoftmax > MatMul(., V)
 *
 * No other node may read the scores, and Q, K and V must have equally many heads. If a tile does not fit the kernel, or
 * tensor cores are faster, the products stay separate (fusion/attention.ts).
 */
import { attributeOf } from '../../../onnx/index.ts';
import { elementCount } from '../../../tensor/index.ts';
import { isOneKernel, type AttentionSizes } from '../../operators/attention/one-kernel.ts';
import type { ProgramSettings } from '../../types.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { byHeads, headsOf, plainProduct, resultOf } from './heads.ts';
import { hasProductTypes, isOfRows, sameNumbers, sameShape } from './patterns.ts';

/** The result of a softmax, perhaps after PyTorch's replacement of NaN by 0: Where(IsNaN(x), 0, x). */
function sharesOf(graph: WorkGraph, softmax: WorkNode) {
  const [value = ''] = softmax.outputs;
  const plain = { nodes: [softmax], result: value, noNan: false };
  if (graph.isOutput(value)) return plain;
  const users = graph.consumers(value);
  const isNan = users.find(({ type }) => type === 'IsNaN');
  const where = users.find(({ type }) => type === 'Where');
  if (users.length !== 2 || isNan === undefined || where === undefined) return plain;
  const [condition = '', zero = '', otherwise] = where.proto.input;
  const replaces = isNan.outputs[0] === condition && graph.onlyConsumer(condition) === where;
  if (!replaces || graph.scalar(zero) !== 0 || otherwise !== value) return plain;
  const result = where.outputs[0]!;
  if (!sameShape(graph, result, value)) return plain;
  return { nodes: [softmax, isNan, where], result, noNan: true };
}

function fuseWhole(graph: WorkGraph, softmax: WorkNode, settings: ProgramSettings): void {
  const [scores = '', mask = ''] = softmax.proto.input;
  const sizesOf = (value: string) => byHeads(graph.shape(value));
  const shape = sizesOf(scores);
  const first = graph.producer(scores);
  if (shape === undefined || first === undefined || graph.onlyConsumer(scores) !== softmax) return;
  const shares = sharesOf(graph, softmax);
  const second = graph.onlyConsumer(shares.result);
  const [one, two] = [plainProduct(first), second && plainProduct(second)];
  if (one === undefined || two === undefined || second === undefined) return;
  const context = two.output;
  if (two.a !== shares.result || two.b === two.a || two.transB || two.alpha !== 1) return;
  const [batch, heads, queries, keys] = shape;
  // Broadcast heads would need a stride of 0.
  const same = (value: string): boolean => sameNumbers(sizesOf(value)?.slice(0, 2), [batch, heads]);
  const [q, k, v] = [headsOf(graph, one.a), headsOf(graph, one.b), headsOf(graph, two.b)];
  if (q === undefined || k === undefined || v === undefined || ![one.a, one.b, two.b, context].every(same)) return;
  if (q.transposed || k.transposed === one.transB || v.transposed || v.factor !== 1) return;
  const { result, strides, transpose } = resultOf(graph, context);
  const values = [q.base, k.base, v.base, result];
  if (!hasProductTypes(graph, mask === '' ? values : [...values, mask])) return;
  const sizes: AttentionSizes = {
    batch,
    heads,
    queries,
    keys,
    size: sizesOf(one.a)![3],
    valueSize: sizesOf(two.b)![3],
  };
  const types = values.map((value) => graph.values.get(value)!.datatype);
  if (elementCount(graph.shape(context)!) === 0 || !isOneKernel(settings, types, sizes)) return;
  const scale = one.alpha * q.factor * k.factor * attributeOf<number>(softmax.proto, 'scale', 1);
  graph.replace([first, ...shares.nodes, second, ...transpose], {
    type: 'turntable.Attention',
    inputs: [q.base, k.base, v.base, ...(mask === '' ? [] : [mask])],
    outputs: [result],
    attributes: {
      ...sizes,
      scale: { float: scale },
      noNan: Number(shares.noNan),
      q: q.strides,
      k: k.strides,
      v: v.strides,
      y: strides,
    },
  });
}

export function fuseWholeAttention(graph: WorkGraph, settings: ProgramSettings): void {
  for (const node of graph.nodes) {
    const isSoftmax = node.type === 'Softmax' || node.type === 'turntable.MaskedSoftmax';
    if (isSoftmax && graph.has(node) && isOfRows(graph, node)) fuseWhole(graph, node, settings);
  }
}
