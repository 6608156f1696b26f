/** Which results have a shape that follows from the shapes of the inputs alone, not from their elements. */
import type { Graph, GraphNode, NodeProto } from '../../onnx/index.ts';
import { argumentsOf, factsOf, type InferredShapes } from '../../operators/index.ts';

const isByElements = (proto: NodeProto): boolean => factsOf(proto)?.shapes === 'elements';

const isConstant = (graph: Graph, values: InferredShapes['values'], value: string): boolean =>
  value === '' || graph.weight(value) !== undefined || values.get(value)?.ints !== undefined;

/** Why the shape of a node's result is not known before a run. */
export function whyShapeless(graph: Graph, { values }: InferredShapes, { proto, uses }: GraphNode): string {
  const taken = uses.find((value) => graph.producer(value) !== undefined && !values.has(value));
  if (taken !== undefined) return `it takes '${taken}', whose shape is not known before a run`;
  if (proto.opType === 'Loop') return 'how often it runs follows from data';
  if (isByElements(proto)) return 'the shape of its result depends on data';
  const open = argumentsOf(proto, 'shape', 'growth').find((value) => !isConstant(graph, values, value));
  if (open !== undefined && graph.inputs.includes(open))
    return `the shape of its result follows from the values of the input '${open}', which a call brings`;
  if (open !== undefined) return `the shape of its result follows from '${open}', which is computed at run time`;
  return 'ONNX Runtime does not tell the shape of its result';
}

/** Nodes without a shape rule whose result has the same shape in every run, so that one run on zeros tells it. */
export function shapedByShapes(graph: Graph, { values, unknown }: InferredShapes): readonly GraphNode[] {
  const missing = new Set(unknown);
  const open = new Set<string>();
  const found: GraphNode[] = [];
  for (const node of graph.nodes) {
    if (!missing.has(node.name)) continue;
    const isOpen =
      isByElements(node.proto) ||
      node.uses.some((value) => open.has(value)) ||
      !argumentsOf(node.proto, 'shape', 'growth').every((value) => isConstant(graph, values, value));
    if (!isOpen) found.push(node);
    else for (const value of node.outputs) open.add(value);
  }
  return found;
}
