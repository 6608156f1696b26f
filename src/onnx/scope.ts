/** Names across nested graphs: the values that bodies of If, Loop and Scan take from the surrounding graph. */
import type { GraphProto, NodeProto } from './types.ts';

/** The graphs in a node's attributes. */
export function nestedGraphs(node: NodeProto): GraphProto[] {
  const graphs: GraphProto[] = [];
  for (const { g, graphs: several } of node.attribute) {
    if (g !== undefined) graphs.push(g);
    if (several !== undefined) graphs.push(...several);
  }
  return graphs;
}

/** Name of a sparse initializer: that of its values. */
export const sparseName = (sparse: { values?: { name: string } }): string => sparse.values?.name ?? '';

function addCaptures(graph: GraphProto, captured: Set<string>): void {
  const own = new Set<string>();
  for (const { name } of graph.input) own.add(name);
  for (const { name } of graph.initializer) own.add(name);
  for (const sparse of graph.sparseInitializer ?? []) own.add(sparseName(sparse));
  for (const { output } of graph.node) for (const name of output) own.add(name);
  const take = (name: string): void => {
    if (name !== '' && !own.has(name)) captured.add(name);
  };
  for (const node of graph.node) {
    for (const name of node.input) take(name);
    for (const name of capturedBy(node)) take(name);
  }
  // A branch of If may return an outer value unchanged.
  for (const { name } of graph.output) take(name);
}

const noNames: readonly string[] = [];

/** Values of the surrounding graph that a node's nested graphs use, at any depth; each once. */
export function capturedBy(node: NodeProto): readonly string[] {
  const graphs = nestedGraphs(node);
  if (graphs.length === 0) return noNames;
  const captured = new Set<string>();
  for (const graph of graphs) addCaptures(graph, captured);
  return [...captured];
}

/** Every node of a list and of the graphs nested in it. */
export function* allNodes(nodes: readonly NodeProto[]): Generator<NodeProto> {
  for (const node of nodes) {
    yield node;
    for (const graph of nestedGraphs(node)) yield* allNodes(graph.node);
  }
}
