/** Emits the nodes of a graph. A chain or tree of elementwise nodes becomes one kernel. */
import { elementCount } from '../../tensor/index.ts';
import { emitElementwise, type ElementwiseStep } from '../operators/elementwise/kernel.ts';
import type { Operator } from '../operators/types.ts';
import { narrowType, type Emission } from './emission.ts';
import { sameShape } from './fusion/patterns.ts';
import { narrowValues } from './narrow-values.ts';
import type { WorkGraph, WorkNode } from './work-graph.ts';

/** A larger kernel would need too many registers, and compile slowly. */
const nodesPerKernelMax = 48;
/** Limit for a kernel's pointers: each costs two registers and an argument. */
const operandsPerKernelMax = 16;

interface Group {
  readonly root: WorkNode;
  readonly nodes: Set<WorkNode>;
}

/** Values from outside a group that its kernel reads through pointers. */
function operandsOf(graph: WorkGraph, nodes: ReadonlySet<WorkNode>): Set<string> {
  const operands = new Set<string>();
  for (const node of nodes) {
    for (const value of node.uses) {
      const producer = graph.producer(value);
      if (producer !== undefined && nodes.has(producer)) continue;
      if (graph.scalar(value) === undefined) operands.add(value);
    }
  }
  return operands;
}

/**
 * An elementwise node joins the kernel of the nodes that read its result if all of them are in one kernel and its
 * result has the shape of the kernel's. A smaller result is broadcast, so it is made once, before.
 */
function groupNodes(
  graph: WorkGraph,
  isElementwise: (node: WorkNode) => boolean,
  fusion: boolean,
): Map<WorkNode, Group> {
  const groups = new Map<WorkNode, Group>();
  for (const node of graph.nodes.toReversed()) {
    if (!isElementwise(node)) continue;
    const [value] = node.outputs;
    const users = value === undefined ? [] : graph.consumers(value);
    const [first] = users;
    const group = first === undefined ? undefined : groups.get(first);
    const joins =
      fusion &&
      group !== undefined &&
      !graph.isOutput(value!) &&
      group.nodes.size < nodesPerKernelMax &&
      users.every((user) => groups.get(user) === group) &&
      sameShape(graph, value!, group.root.outputs[0]!) &&
      operandsOf(graph, new Set([...group.nodes, node])).size <= operandsPerKernelMax;
    if (joins) {
      group.nodes.add(node);
      groups.set(node, group);
    } else {
      groups.set(node, { root: node, nodes: new Set([node]) });
    }
  }
  return groups;
}

export function emitNodes(
  emission: Emission,
  operators: ReadonlyMap<string, Operator>,
  blocked: ReadonlySet<string>,
  fusion: boolean,
): void {
  const { graph } = emission;
  const isElementwise = (node: WorkNode): boolean => {
    const expression = operators.get(node.type)?.elementwise;
    if (expression === undefined || blocked.has(node.name) || node.outputs.length !== 1) return false;
    const { shape } = graph.values.get(node.outputs[0]!) ?? {};
    if (shape === undefined || elementCount(shape) === 0) return false;
    let found = false;
    emission.attempt(node, () => {
      const names = node.proto.input.map((_, index) => `x${index}`);
      const emitter = emission.emitter(node);
      if (operators.get(node.type)?.viewOf?.(emitter) !== undefined) return;
      expression(emitter, names);
      found = true;
    });
    return found;
  };
  const groups = groupNodes(graph, isElementwise, fusion);
  const narrow = narrowType(emission.settings);
  if (narrow !== undefined) {
    const isNarrowWeight = (value: string): boolean => graph.weight(value)?.narrowable === true;
    const values = narrowValues({ graph, isElementwise: (node) => groups.has(node), isNarrowWeight });
    for (const value of values) emission.storeAs(value, narrow);
  }
  const failed = new Set(emission.obstacles.map(({ node }) => node));
  const nodes = graph.nodes;
  const places = new Map(nodes.map((node, place) => [node, place]));
  for (const node of nodes) {
    if (blocked.has(node.name) || failed.has(node.name)) continue;
    const group = groups.get(node);
    if (group === undefined) {
      emission.emit(node, operators.get(node.type));
      emission.placeEarly(node.outputs);
      continue;
    }
    if (group.root !== node) continue;
    emission.attempt(node, () => {
      const members = [...group.nodes].sort((a, b) => places.get(a)! - places.get(b)!);
      emission.recorder.at(node.layer, members.map(({ label }) => label).join(' + '));
      const steps = members.map((member): ElementwiseStep => ({
        inputs: member.proto.input,
        output: emission.graph.values.get(member.outputs[0]!)!.datatype,
        name: member.outputs[0]!,
        expression: (names) => operators.get(member.type)!.elementwise!(emission.emitter(member), names),
      }));
      emitElementwise({
        steps,
        value: (name) => emission.value(name),
        scalar: (name) => {
          const tensor = graph.constants.get(name);
          return tensor !== undefined && elementCount(tensor.shape) === 1 ? tensor : undefined;
        },
        recorder: emission.recorder,
      });
    });
    emission.placeEarly(node.outputs);
  }
}
