/**
 * Fuses products of one input by several adjacent weights (../joint-weights.ts) into a batch: a transformer's Q, K and
 * V. `turntable.JointProduct` has the inputs A, `count` matrices, and as many biases or none, and the attributes
 * transB, alpha, activation. Results keep their names and shapes.
 */
import type { AttributeValue } from '../../../onnx/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import { hasPlainBias, hasProductTypes, productOf, rootOf, type ProductNode } from './patterns.ts';

interface Member extends ProductNode {
  readonly node: WorkNode;
}

function memberOf(graph: WorkGraph, node: WorkNode): Member | undefined {
  const product = productOf(node);
  if (product === undefined || product.transA || !hasPlainBias(graph, product)) return undefined;
  const { a, b, bias, output } = product;
  if ([b, bias].some((value) => value !== undefined && !graph.weights.has(value))) return undefined;
  if (graph.shape(b)?.length !== 2 || (graph.shape(a)?.length ?? 0) < 2) return undefined;
  if (graph.isOutput(output) || !hasProductTypes(graph, [a, b, output])) return undefined;
  return { ...product, node };
}

const attributesOf = ({ transB, alpha, activation }: Member): Record<string, AttributeValue> => ({
  transB: Number(transB),
  alpha: { float: alpha },
  activation,
});

export function fuseJointProducts(graph: WorkGraph): void {
  const groups = new Map<string, Member[]>();
  for (const node of graph.nodes) {
    const member = memberOf(graph, node);
    if (member === undefined) continue;
    // ONNX Runtime makes Gemm nodes of MatMuls, each with its own view of the input.
    const input = [rootOf(graph, member.a), graph.shape(member.a)];
    const key = JSON.stringify([input, attributesOf(member), member.bias === undefined]);
    groups.set(key, [...(groups.get(key) ?? []), member]);
  }
  for (const members of groups.values()) {
    const sorted = members.toSorted((a, b) => graph.weights.get(a.b)! - graph.weights.get(b.b)!);
    let run: Member[] = [];
    for (const member of sorted) {
      const last = run.at(-1);
      const fits =
        last !== undefined &&
        graph.follows(member.b, last.b) &&
        (member.bias === undefined || graph.follows(member.bias, last.bias!));
      if (!fits) {
        join(graph, run);
        run = [];
      }
      run.push(member);
    }
    join(graph, run);
  }
}

function join(graph: WorkGraph, members: readonly Member[]): void {
  const [first] = members;
  if (first === undefined || members.length === 1) return;
  const biases = members.flatMap(({ bias }) => bias ?? []);
  // The batch replaces the first product, and only the view that the first product reads is made before it.
  const { a } = members.reduce((one, other) => (graph.precedes(other.node, one.node) ? other : one));
  graph.replaceFirst(
    members.map(({ node }) => node),
    {
      type: 'turntable.JointProduct',
      inputs: [a, ...members.map(({ b }) => b), ...biases],
      outputs: members.map(({ output }) => output),
      attributes: { ...attributesOf(first), count: members.length },
    },
  );
}
