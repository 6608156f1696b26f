/**
 * The operators that plans place: single nodes, and groups of nodes that must be on one processor because a value
 * between them cannot cross. ONNX Runtime's calls take and return no sequences, no optionals and no bfloat16.
 */
import { append } from '../../tools/index.ts';
import { typedGraph } from '../../operators/index.ts';
import { livingNodes, type PreparedGraph, type PreparedNode } from '../program/prepared.ts';
import { canCross } from './submodel.ts';

export interface PlannedOperator {
  /** The name of its node; of a group 'FIRST + 3 more'. */
  readonly name: string;
  /** In an order in which they can run, as in {@link PreparedGraph}. */
  readonly nodes: readonly PreparedNode[];
  /** Values that other operators make, and inputs of the function. */
  readonly uses: readonly string[];
  readonly outputs: readonly string[];
}

/**
 * The operators of a graph, in an order in which they can run. Nodes that make or read a value that cannot cross form a
 * group. A node on a path from the group back into it joins the group too: it could run neither before nor after it.
 */
export function plannedOperators(prepared: PreparedGraph): PlannedOperator[] {
  const nodes = livingNodes(prepared);
  const makerOf = new Map(nodes.flatMap(({ outputs }, index) => outputs.map((value) => [value, index] as const)));
  const graph = typedGraph(prepared.model);
  const groups = new Groups(nodes.length);
  const links: Link[] = [];
  for (const [to, { uses }] of nodes.entries()) {
    for (const value of uses) {
      const from = makerOf.get(value);
      if (from === undefined || prepared.constants.has(value)) continue;
      if (canCross(prepared, graph, value)) links.push({ from, to });
      else groups.join(from, to);
    }
  }
  // Nearly every graph has no groups.
  if (groups.areSingle) return nodes.map((node) => operatorOf([node]));
  joinCircles(nodes.length, links, groups);
  return inOrder(nodes, links, groups).map((members) => operatorOf(members.map((index) => nodes[index]!)));
}

interface Link {
  readonly from: number;
  readonly to: number;
}

/** Disjoint sets of the numbers below `count` (union-find). */
export class Groups {
  readonly #root: Int32Array;
  areSingle = true;

  constructor(count: number) {
    this.#root = Int32Array.from({ length: count }, (_, index) => index);
  }

  /** The smallest number of the group. */
  of(node: number): number {
    let at = node;
    while (this.#root[at] !== at) at = this.#root[at] = this.#root[this.#root[at]!]!;
    return at;
  }

  join(a: number, b: number): void {
    const [first, other] = [this.of(a), this.of(b)].sort((x, y) => x - y) as [number, number];
    if (first === other) return;
    this.#root[other] = first;
    this.areSingle = false;
  }
}

/** For each group the groups that its links lead to. */
function neighbours(count: number, links: readonly Link[], groups: Groups): readonly ReadonlySet<number>[] {
  const next = Array.from({ length: count }, () => new Set<number>());
  for (const { from, to } of links) {
    const [a, b] = [groups.of(from), groups.of(to)];
    if (a !== b) next[a]!.add(b);
  }
  return next;
}

/** What links lead to from a group, itself included. */
function reached(next: readonly ReadonlySet<number>[], group: number): ReadonlySet<number> {
  const found = new Set([group]);
  for (const each of found) for (const other of next[each]!) found.add(other);
  return found;
}

/** Joins each group of several nodes with those on a path from it back into it. Single nodes alone form no circle. */
function joinCircles(count: number, links: readonly Link[], groups: Groups): void {
  const nodes = Array.from({ length: count }, (_, index) => index);
  const several = new Set(nodes.map((node) => groups.of(node)).filter((group, node) => group !== node));
  const next = neighbours(count, links, groups);
  const backwards = links.map(({ from, to }): Link => ({ from: to, to: from }));
  const previous = neighbours(count, backwards, groups);
  for (const group of several) {
    const behind = reached(next, group);
    for (const before of reached(previous, group)) if (behind.has(before)) groups.join(group, before);
  }
}

/** The nodes of each group, with groups in topological order. */
function inOrder(nodes: readonly PreparedNode[], links: readonly Link[], groups: Groups): number[][] {
  const next = neighbours(nodes.length, links, groups);
  const waitsFor = new Int32Array(nodes.length);
  for (const others of next) for (const other of others) waitsFor[other]!++;
  const members = new Map<number, number[]>();
  for (const index of nodes.keys()) append(members, groups.of(index), index);
  const ordered: number[][] = [];
  const ready = [...members.keys()].filter((group) => waitsFor[group] === 0);
  for (const group of ready) {
    ordered.push(members.get(group)!);
    for (const other of next[group]!) if (--waitsFor[other]! === 0) ready.push(other);
  }
  return ordered;
}

function operatorOf(nodes: readonly PreparedNode[]): PlannedOperator {
  const [first] = nodes as readonly [PreparedNode];
  if (nodes.length === 1) return { name: first.name, nodes, uses: first.uses, outputs: first.outputs };
  const outputs = nodes.flatMap((node) => node.outputs);
  const own = new Set(outputs);
  const uses = new Set(nodes.flatMap((node) => node.uses).filter((value) => !own.has(value)));
  return { name: `${first.name} + ${nodes.length - 1} more`, nodes, uses: [...uses], outputs };
}
