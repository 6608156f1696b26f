/**
 * Which activations are kept in 16 bits under `fp16` and `bf16`, where products' weights are. A product must convert an
 * operand of 32 bits first; if the kernel that makes the operand writes 16 bits, no conversion is needed:
 *
 *     LayerNormalization > x16 > JointProduct > q16 k16 v16 > HeadProduct > scores32 > Softmax > p16 > HeadProduct > ...
 *
 * The graph's types do not change: a value of type FP32 may be in memory in 16 bits, as weights may. Only kernels that
 * heed `Value.storedType` can handle one, so its producer and all its consumers must be of the kinds below.
 */
import { kernelFacts } from '../../operators/index.ts';
import { isView, rootOf } from './fusion/patterns.ts';
import type { WorkGraph, WorkNode } from './work-graph.ts';

const isProduct = ({ type }: WorkNode): boolean => kernelFacts(type)?.narrow === 'product';

/** Their first output and all their inputs may be in 16 bits. */
const worksOnRows = ({ type }: WorkNode): boolean => kernelFacts(type)?.narrow === 'row';

const isPool = ({ type, outputs }: WorkNode): boolean => kernelFacts(type)?.narrow === 'pool' && outputs.length === 1;

const isJoint = ({ type }: WorkNode): boolean => kernelFacts(type)?.narrow === 'join';

const passesOn = (node: WorkNode): boolean => isJoint(node) || isPool(node);

interface Question {
  readonly graph: WorkGraph;
  readonly isElementwise: (node: WorkNode) => boolean;
  /** Whether an FP32 weight is kept in 16 bits. */
  readonly isNarrowWeight: (value: string) => boolean;
}

/** Names of values to keep in 16 bits. Views are not listed: they share their value's bytes. */
export function narrowValues(question: Question): Set<string> {
  const { graph } = question;
  const narrow = new Set<string>();
  for (const node of graph.nodes) {
    if (isView(node)) continue;
    for (const value of node.outputs) if (isCandidate(question, node, value)) narrow.add(value);
  }
  const nodes = graph.nodes.filter(isProduct);
  const joints = graph.nodes.filter(isJoint);
  for (let before = -1; before !== narrow.size;) {
    before = narrow.size;
    for (const node of nodes) settle(question, node, narrow);
    for (const node of joints) settleJoint(graph, node, narrow);
  }
  return narrow;
}

/**
 * Nodes that read a value or a view of it, and the name they read it under; undefined if it is an output, or not FP32.
 */
function usersOf(graph: WorkGraph, value: string): { readonly node: WorkNode; readonly as: string }[] | undefined {
  if (graph.isOutput(value) || graph.values.get(value)?.datatype !== 'FP32') return undefined;
  const users: { node: WorkNode; as: string }[] = [];
  for (const node of graph.consumers(value)) {
    if (!isView(node)) {
      users.push({ node, as: value });
      continue;
    }
    const behind = usersOf(graph, node.outputs[0]!);
    if (behind === undefined || node.proto.input[0] !== value) return undefined;
    users.push(...behind);
  }
  return users;
}

const isOperand = ({ proto }: WorkNode, value: string): boolean => proto.input.indexOf(value) <= 1;

function isCandidate(question: Question, node: WorkNode, value: string): boolean {
  const { graph, isElementwise, isNarrowWeight } = question;
  const isMade =
    isProduct(node) || isElementwise(node) || passesOn(node) || (worksOnRows(node) && node.outputs[0] === value);
  const users = isMade ? usersOf(graph, value) : undefined;
  if (users === undefined) return false;
  const isRead = users.every(
    ({ node: user, as }) =>
      (isProduct(user) && isOperand(user, as)) || worksOnRows(user) || passesOn(user) || isElementwise(user),
  );
  // A value without a product at either end keeps its 32 bits.
  const byProduct = isProduct(node) && isNarrowWeight(node.proto.input[1] ?? '');
  const forProduct = ({ node: user }: { readonly node: WorkNode }): boolean =>
    isProduct(user) || isJoint(user) || (isPool(user) && isCandidate(question, user, user.outputs[0]!));
  return isRead && (byProduct || users.some(forProduct));
}

/** Concat moves bytes, so its inputs and its result must have one type. */
function settleJoint(graph: WorkGraph, { proto, outputs }: WorkNode, narrow: Set<string>): void {
  const values = [...proto.input.map((value) => rootOf(graph, value)), ...outputs];
  if (values.every((value) => narrow.has(value))) return;
  for (const value of values) narrow.delete(value);
}

/** Both operands of a product must have one type, and its result must not be narrower. */
function settle({ graph, isNarrowWeight }: Question, node: WorkNode, narrow: Set<string>): void {
  const [a, b] = [rootOf(graph, node.proto.input[0] ?? ''), node.proto.input[1] ?? ''];
  const root = rootOf(graph, b);
  let mayNarrow = true;
  if (graph.isConstant(b)) {
    mayNarrow = isNarrowWeight(b);
    if (!mayNarrow) narrow.delete(a);
  } else if (!narrow.has(a) || !narrow.has(root)) {
    mayNarrow = false;
    narrow.delete(a);
    narrow.delete(root);
  }
  // The results of a joint product are one block, of one type.
  if (mayNarrow && node.outputs.every((value) => narrow.has(value))) return;
  for (const value of node.outputs) narrow.delete(value);
}
