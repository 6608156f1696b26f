/** Cuts what some values need out of a model, as a model of its own. */
import { Graph } from './graph.ts';
import { tensorType } from './graph-node.ts';
import { sparseName } from './scope.ts';
import type { ModelProto, NodeProto, ValueInfoProto } from './types.ts';

/**
 * A model of the nodes, weights and inputs that the outputs need. Nodes and tensors are those of `model`, not copies.
 * @param outputs values that nodes make
 */
export function extract(model: ModelProto, outputs: readonly string[], graph = new Graph(model)): ModelProto {
  const needed = new Set(outputs);
  const node: NodeProto[] = [];
  for (const { proto, uses, outputs: made } of graph.nodes.toReversed()) {
    if (!made.some((value) => needed.has(value))) continue;
    node.push(proto);
    for (const value of [...uses, ...made]) needed.add(value);
  }
  const isNeeded = ({ name }: { readonly name: string }): boolean => needed.has(name);
  const info = (name: string): ValueInfoProto => {
    const { elementType, shape } = graph.type(name) ?? {};
    return elementType === undefined ? { name } : { name, type: tensorType(elementType, shape) };
  };
  const { trainingInfo: _training, ...rest } = model;
  const { initializer, sparseInitializer = [], input, valueInfo, quantizationAnnotation = [] } = model.graph;
  return {
    ...rest,
    graph: {
      ...model.graph,
      node: node.toReversed(),
      initializer: initializer.filter(isNeeded),
      sparseInitializer: sparseInitializer.filter((sparse) => needed.has(sparseName(sparse))),
      input: input.filter(isNeeded),
      output: outputs.map(info),
      valueInfo: valueInfo.filter(({ name }) => needed.has(name) && !outputs.includes(name)),
      quantizationAnnotation: quantizationAnnotation.filter(({ tensorName }) => needed.has(tensorName)),
    },
  };
}
