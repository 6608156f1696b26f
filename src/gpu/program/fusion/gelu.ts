/**
 * Finds GELU that is written out in arithmetic, which exporters do in many ways. A small tree of operators on one value
 * is not matched by its form: it is evaluated at some points and compared with GELU.
 */
import { erf, kernelFacts } from '../../../operators/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';

const geluErf = (x: number): number => 0.5 * x * (1 + erf(x / Math.SQRT2));
const geluTanh = (x: number): number => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));

const points = [-6, -3.2, -1.7, -0.9, -0.3, 0, 0.15, 0.6, 1.1, 2.3, 4.5];
/** Below the 4e-4 by which the two forms differ, above the error of constants that are rounded to 16 bits in a file. */
const tolerance = 3e-5;

/** A tree with more nodes is not GELU. */
const nodesMax = 12;

interface Tree {
  readonly nodes: readonly WorkNode[];
  readonly leaf: string;
}

/**
 * The operators above `root` whose results only the tree reads. Undefined unless they compute from exactly one value.
 */
function treeOf(graph: WorkGraph, root: WorkNode): Tree | undefined {
  const nodes = new Set([root]);
  const leaves = new Set<string>();
  const pending = [...root.uses];
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (graph.scalar(value) !== undefined) continue;
    const producer = graph.producer(value);
    const inside =
      producer !== undefined &&
      graph.onlyConsumer(value) !== undefined &&
      kernelFacts(producer.type)?.numbers !== undefined;
    if (inside) {
      nodes.add(producer);
      if (nodes.size > nodesMax) return undefined;
      pending.push(...producer.uses);
    } else {
      leaves.add(value);
      if (leaves.size > 1) return undefined;
    }
  }
  const [leaf] = leaves;
  return leaf === undefined || nodes.size < 3 ? undefined : { nodes: [...nodes], leaf };
}

function evaluate(graph: WorkGraph, tree: Tree, root: WorkNode, x: number): number {
  const at = (value: string): number => {
    if (value === tree.leaf) return x;
    const scalar = graph.scalar(value);
    if (scalar !== undefined) return scalar;
    const node = graph.producer(value)!;
    const [a = '', b] = node.proto.input;
    return kernelFacts(node.type)!.numbers!(at(a), b === undefined ? Number.NaN : at(b));
  };
  return at(root.outputs[0]!);
}

/** Replaces trees that compute GELU by Gelu nodes, with the attribute `approximate` for the form. */
export function fuseGelu(graph: WorkGraph): void {
  for (const root of graph.nodes) {
    if (root.type !== 'Mul' || !graph.has(root)) continue;
    const tree = treeOf(graph, root);
    const output = root.outputs[0]!;
    if (tree === undefined || graph.values.get(output)?.datatype !== graph.values.get(tree.leaf)?.datatype) continue;
    if (graph.shape(output)?.join() !== graph.shape(tree.leaf)?.join()) continue;
    const found = points.map((x) => evaluate(graph, tree, root, x));
    const is = (form: (x: number) => number): boolean =>
      points.every((x, index) => Math.abs(found[index]! - form(x)) <= tolerance);
    const approximate = is(geluErf) ? 'none' : is(geluTanh) ? 'tanh' : undefined;
    if (approximate === undefined) continue;
    graph.replace(tree.nodes, { type: 'Gelu', inputs: [tree.leaf], outputs: [output], attributes: { approximate } });
  }
}
