/** Fuses a sum with the normalisation behind it, and a mask with the softmax behind it. */
import { attributeOf } from '../../../onnx/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { hasProductTypes, isOfRows, sameShape, unscaled } from './patterns.ts';

/** The operands of an Add; `a` has the shape of the result. */
function addends(
  graph: WorkGraph,
  value: string,
): { readonly node: WorkNode; readonly a: string; readonly b: string } | undefined {
  const node = graph.producer(value);
  if (node?.type !== 'Add') return undefined;
  const [a, b] = node.proto.input;
  if (a === undefined || b === undefined || !hasProductTypes(graph, [a, b, value])) return undefined;
  if (sameShape(graph, a, value)) return { node, a, b };
  return sameShape(graph, b, value) ? { node, a: b, b: a } : undefined;
}

/** LayerNormalization of a sum becomes `turntable.AddLayerNormalization`, with the sum as output if others read it. */
export function fuseResidualNormalizations(graph: WorkGraph): void {
  for (const node of graph.nodes) {
    if (node.type !== 'LayerNormalization' || !graph.has(node) || node.outputs.length !== 1) continue;
    const [x = '', scale = '', bias = ''] = node.proto.input;
    const sum = addends(graph, x);
    if (sum === undefined) continue;
    const others = graph.consumers(x).filter((user) => user !== node);
    // The sum is made where the normalisation stands, so its other readers must come later.
    if (others.some((user) => graph.precedes(user, node))) continue;
    const inner = graph.onlyConsumer(sum.a) === sum.node ? addends(graph, sum.a) : undefined;
    const [a, b, addend] = inner === undefined ? [sum.a, sum.b, ''] : [inner.a, inner.b, sum.b];
    graph.replace(inner === undefined ? [node, sum.node] : [node, sum.node, inner.node], {
      type: 'turntable.AddLayerNormalization',
      inputs: [a, b, scale, bias, addend],
      outputs: others.length > 0 || graph.isOutput(x) ? [...node.proto.output.slice(0, 1), x] : node.proto.output,
      attributes: {
        axis: attributeOf<number>(node.proto, 'axis', -1),
        epsilon: { float: attributeOf<number>(node.proto, 'epsilon', 1e-5) },
      },
    });
  }
}

/** In 32 bits, a score plus -1e30 or less is that number, so adding it does the same as replacing the score by it. */
const masksFrom = -1e30;

interface Mask {
  readonly nodes: readonly WorkNode[];
  readonly scores: string;
  readonly mask: string;
  /** The operands of a Where that replaces scores: a mask to add has to be made from them. */
  readonly made: { readonly condition: string; readonly low: string } | undefined;
}

/** Scores and their mask, from an Add, or from a Where that replaces scores by a very low number. */
function maskOf(graph: WorkGraph, value: string): Mask | undefined {
  const node = graph.producer(value);
  if (node === undefined || graph.onlyConsumer(value) === undefined) return undefined;
  if (node.type === 'Add') {
    const sum = addends(graph, value);
    if (sum === undefined) return undefined;
    // If either operand could be the scores, it is the one that is made later: masks are made once, before all layers.
    const [a, b] = [graph.producer(sum.a), graph.producer(sum.b)];
    const swapped = sameShape(graph, sum.b, value) && b !== undefined && (a === undefined || graph.precedes(a, b));
    return { nodes: [node], scores: swapped ? sum.b : sum.a, mask: swapped ? sum.a : sum.b, made: undefined };
  }
  const [condition, scores, low] = node.proto.input;
  if (node.type !== 'Where' || condition === undefined || scores === undefined || low === undefined) return undefined;
  const replaced = graph.scalar(low);
  const fits = replaced !== undefined && replaced <= masksFrom && sameShape(graph, scores, value);
  if (!fits || graph.values.get(scores)?.datatype !== 'FP32') return undefined;
  return { nodes: [node], scores, mask: '', made: { condition, low } };
}

/** Softmax of masked scores becomes `turntable.MaskedSoftmax`, with the factor before the mask if there is one. */
export function fuseMaskedSoftmax(graph: WorkGraph): void {
  /** Masks made from conditions, by condition and number: all layers of a model have the same one. */
  const masks = new Map<string, string>();
  for (const node of graph.nodes) {
    if (node.type !== 'Softmax' || !graph.has(node) || !isOfRows(graph, node)) continue;
    const found = maskOf(graph, node.proto.input[0] ?? '');
    if (found === undefined) continue;
    const { value: scores, factor: scale, node: scaled } = unscaled(graph, found.scores);
    const nodes = [node, ...found.nodes, ...(scaled === undefined ? [] : [scaled])];
    const softmax = (mask: string) => ({
      type: 'turntable.MaskedSoftmax',
      inputs: [scores, mask],
      outputs: node.proto.output,
      attributes: { axis: -1, scale: { float: scale } },
    });
    if (found.made === undefined) {
      graph.replace(nodes, softmax(found.mask));
      continue;
    }
    const { condition, low } = found.made;
    const key = `${condition}\0${low}`;
    const known = masks.get(key);
    if (known !== undefined) {
      graph.replace(nodes, softmax(known));
      continue;
    }
    const mask = graph.newValue(condition, { datatype: 'FP32', shape: graph.shape(condition)! });
    masks.set(key, mask);
    const zero = graph.scalarConstant('FP32', 0);
    graph.replace(nodes, { type: 'Where', inputs: [condition, zero, low], outputs: [mask] }, softmax(mask));
  }
}
