/**
 * Finds GELU that is written out in arithmetic, which exporters do in many ways. A small tree of operators on one value
 * is not matched by its form: it is evaluated at some points and compared with GELU.
 */
import type { GraphNode } from '../onnx/index.ts';
import { erf } from './families/elementwise.ts';
import { factsOf } from './records.ts';

const geluErf = (x: number): number => 0.5 * x * (1 + erf(x / Math.SQRT2));
const geluTanh = (x: number): number => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));

const points = [-6, -3.2, -1.7, -0.9, -0.3, 0, 0.15, 0.6, 1.1, 2.3, 4.5];
/** Below the 4e-4 by which the two forms differ, above the error of constants that are rounded to 16 bits in a file. */
const tolerance = 3e-5;

/** A tree with more nodes is not GELU. */
const nodesMax = 12;

/** What the search asks about a graph. */
export interface Arithmetic<Node extends GraphNode> {
  producer(value: string): Node | undefined;
  /** The node that reads a value; undefined if several do, or if the value is an output. */
  onlyConsumer(value: string): Node | undefined;
  /** The number in a constant of one element. */
  scalar(value: string): number | undefined;
}

interface Tree<Node> {
  readonly nodes: readonly Node[];
  readonly leaf: string;
}

/**
 * The operators above `root` whose results only the tree reads. Undefined unless they compute from exactly one value.
 */
function treeOf<Node extends GraphNode>(graph: Arithmetic<Node>, root: Node): Tree<Node> | undefined {
  const nodes = new Set([root]);
  const leaves = new Set<string>();
  const pending = [...root.uses];
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    if (graph.scalar(value) !== undefined) continue;
    const producer = graph.producer(value);
    const inside =
      producer !== undefined &&
      graph.onlyConsumer(value) !== undefined &&
      factsOf(producer.proto)?.numbers !== undefined;
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

function evaluate<Node extends GraphNode>(graph: Arithmetic<Node>, leaf: string, root: string, x: number): number {
  const at = (value: string): number => {
    if (value === leaf) return x;
    const scalar = graph.scalar(value);
    if (scalar !== undefined) return scalar;
    const { proto } = graph.producer(value)!;
    const [a = '', b] = proto.input;
    return factsOf(proto)!.numbers!(at(a), b === undefined ? Number.NaN : at(b));
  };
  return at(root);
}

/** The tree that computes GELU of `leaf` in `root`, a multiplication, with ONNX's name of its form. */
export function geluAt<Node extends GraphNode>(graph: Arithmetic<Node>, root: Node) {
  if (root.proto.opType !== 'Mul') return undefined;
  const tree = treeOf(graph, root);
  if (tree === undefined) return undefined;
  const found = points.map((x) => evaluate(graph, tree.leaf, root.outputs[0]!, x));
  const is = (form: (x: number) => number): boolean =>
    points.every((x, index) => Math.abs(found[index]! - form(x)) <= tolerance);
  const approximate = is(geluErf) ? ('none' as const) : is(geluTanh) ? ('tanh' as const) : undefined;
  return approximate && { ...tree, approximate };
}
