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

/** Values that a graph defines, which hide those of the surrounding graph. */
const ownNames = (graph: GraphProto): Set<string> =>
  new Set([
    ...graph.input.map(({ name }) => name),
    ...graph.initializer.map(({ name }) => name),
    ...(graph.sparseInitializer ?? []).map(sparseName),
    ...graph.node.flatMap(({ output }) => output),
  ]);

function addCaptures(graph: GraphProto, captured: Set<string>): void {
  const own = ownNames(graph);
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

/** The node with other graphs in its attributes. */
export function withGraphs(node: NodeProto, change: (graph: GraphProto) => GraphProto): NodeProto {
  if (nestedGraphs(node).length === 0) return node;
  const attribute = node.attribute.map((each) => ({
    ...each,
    ...(each.g && { g: change(each.g) }),
    ...(each.graphs && { graphs: each.graphs.map(change) }),
  }));
  return { ...node, attribute };
}

/** The nodes with other names for some values, also where nested graphs capture them. */
export function renamed(nodes: readonly NodeProto[], names: ReadonlyMap<string, string>): NodeProto[] {
  if (names.size === 0) return [...nodes];
  const of = (name: string): string => names.get(name) ?? name;
  return nodes.map((node) =>
    withGraphs({ ...node, input: node.input.map(of), output: node.output.map(of) }, (graph) => {
      const own = ownNames(graph);
      const captured = new Map([...names].filter(([name]) => !own.has(name)));
      return {
        ...graph,
        node: renamed(graph.node, captured),
        output: graph.output.map((info) => ({ ...info, name: captured.get(info.name) ?? info.name })),
      };
    }),
  );
}

/** The names of nodes and of their values, also in nested graphs. */
export function* namesOfNodes(nodes: readonly NodeProto[]): Generator<string> {
  for (const node of nodes) {
    yield* [node.name, ...node.input, ...node.output];
    for (const graph of nestedGraphs(node)) yield* namesIn(graph);
  }
}

/** Every name in a graph and in those nested in it. */
export function* namesIn({ node, input, initializer, output, valueInfo }: GraphProto): Generator<string> {
  for (const { name } of [...input, ...initializer, ...output, ...valueInfo]) yield name;
  yield* namesOfNodes(node);
}

/** A name that none of `names` is, which it joins: `wanted`, or `wanted` with a number. */
export function unusedName(names: Set<string>, wanted: string): string {
  let name = wanted;
  for (let repeat = 1; names.has(name); repeat++) name = `${wanted}_${repeat}`;
  names.add(name);
  return name;
}
