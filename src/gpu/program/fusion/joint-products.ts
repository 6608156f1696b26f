/**
 * Products of one input by several weights that lie side by side (../joint-weights.ts), as one batch: a transformer's
 * Q, K and V. They become `turntable.JointProduct`: A, `count` matrices, then as many biases or none; attributes
 * transB, alpha, activation. Each result keeps its name, its shape and bytes of its own.
 */
import { attributeOf } from '../../../onnx/index.ts';
import type { MadeAttribute, WorkGraph, WorkNode } from '../work-graph.ts';
import { hasProductTypes, isRowVector, rootOf } from './patterns.ts';

interface Member {
  readonly node: WorkNode;
  readonly a: string;
  readonly matrix: string;
  readonly bias: string | undefined;
  readonly output: string;
  readonly attributes: Readonly<Record<string, MadeAttribute>>;
}

const productTypes = new Set(['MatMul', 'Gemm', 'turntable.Product']);

function memberOf(graph: WorkGraph, node: WorkNode): Member | undefined {
  const { proto } = node;
  const [a, matrix, third] = proto.input;
  const [output] = node.outputs;
  if (!productTypes.has(node.type) || a === undefined || matrix === undefined || output === undefined) return undefined;
  const bias = third === '' ? undefined : third;
  if (!graph.weights.has(matrix) || graph.shape(matrix)?.length !== 2 || (graph.shape(a)?.length ?? 0) < 2)
    return undefined;
  if (graph.isOutput(output) || !hasProductTypes(graph, [a, matrix, output])) return undefined;
  if (attributeOf<number>(proto, 'transA', 0) !== 0) return undefined;
  if (bias !== undefined) {
    if (!graph.weights.has(bias) || attributeOf(proto, 'beta', 1) !== 1) return undefined;
    if (!isRowVector(graph.shape(bias), graph.shape(output)!.at(-1)!) || !hasProductTypes(graph, [bias, output])) {
      return undefined;
    }
  }
  const attributes = {
    transB: attributeOf<number>(proto, 'transB', 0),
    alpha: { float: attributeOf<number>(proto, 'alpha', 1) },
    activation: attributeOf<string>(proto, 'activation', 'none'),
  };
  return { node, a, matrix, bias, output, attributes };
}

/** Whether a weight comes directly behind another one of the same form. */
function follows(graph: WorkGraph, value: string, before: string): boolean {
  const [weight, last] = [graph.weight(value), graph.weight(before)];
  return (
    weight !== undefined &&
    last !== undefined &&
    graph.weights.get(value) === graph.weights.get(before)! + 1 &&
    weight.layer === last.layer &&
    weight.datatype === last.datatype &&
    weight.narrowable === last.narrowable &&
    weight.shape.join() === last.shape.join()
  );
}

export function fuseJointProducts(graph: WorkGraph): void {
  const groups = new Map<string, Member[]>();
  for (const node of graph.nodes) {
    const member = memberOf(graph, node);
    if (member === undefined) continue;
    // ONNX Runtime gives each Gemm that it makes of a MatMul a view of its own.
    const input = [rootOf(graph, member.a), graph.shape(member.a)];
    const key = JSON.stringify([input, member.attributes, member.bias === undefined]);
    groups.set(key, [...(groups.get(key) ?? []), member]);
  }
  for (const members of groups.values()) {
    const sorted = members.toSorted((a, b) => graph.weights.get(a.matrix)! - graph.weights.get(b.matrix)!);
    let run: Member[] = [];
    for (const member of sorted) {
      const last = run.at(-1);
      const fits =
        last !== undefined &&
        follows(graph, member.matrix, last.matrix) &&
        (member.bias === undefined || follows(graph, member.bias, last.bias!));
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
  // Each may read the input through a view of its own, and the others' views come behind the place of the first.
  const { a } = members.reduce((one, other) => (graph.precedes(other.node, one.node) ? other : one));
  graph.replaceFirst(
    members.map(({ node }) => node),
    {
      type: 'turntable.JointProduct',
      inputs: [a, ...members.map(({ matrix }) => matrix), ...biases],
      outputs: members.map(({ output }) => output),
      attributes: { ...first.attributes, count: members.length },
    },
  );
}
