/** Applies a plan to a prepared graph: the GPU's share, the cores' shares, and the values that cross between them. */
import type { PreparedGraph, PreparedNode } from '../program/prepared.ts';
import { GpuError } from '../types.ts';
import { Arrivals } from './gates.ts';
import { plannedOperators, type PlannedOperator } from './planned-operators.ts';
import { partOfGraph, type GraphPart } from './submodel.ts';
import type { HybridPlan } from './types.ts';

export interface CpuShare extends GraphPart {
  readonly core: number;
}

export type Partition = ReturnType<typeof partition>;

/** @throws GpuError 'invalid' for a plan that does not fit this graph, or that has a cycle between CPU and GPU */
export function partition(prepared: PreparedGraph, plan: HybridPlan) {
  const planned = plannedOperators(prepared);
  const byName = new Map(planned.map((node) => [node.name, node]));
  const order = orderOf(plan, byName);
  const segmentOf = new Map<PlannedOperator, number>();
  for (const [index, { operators, core }] of plan.segments.entries()) {
    if (!Number.isInteger(core) || core < 1)
      throw invalid(plan, `segment ${index} is for core ${core}, and cores count from 1`);
    for (const name of operators) {
      const node = byName.get(name);
      if (node === undefined) throw invalid(plan, `it places '${name}', which is no operator of the function`);
      if (segmentOf.has(node)) throw invalid(plan, `it places '${name}' twice`);
      segmentOf.set(node, index);
    }
  }

  const maker = new Map<string, PlannedOperator>();
  for (const node of planned) for (const value of node.outputs) maker.set(value, node);
  const placeOf = (node: PlannedOperator): number => segmentOf.get(node) ?? onGpu;
  /** Values that are read elsewhere than where they are made, and the graph's outputs. */
  const leaving = new Set(prepared.outputs);
  const toGpu = new Set<string>();
  const toCpu = new Set<string>();
  for (const node of order) {
    for (const value of node.uses) {
      const from = maker.get(value);
      if (from === undefined || prepared.constants.has(value) || placeOf(from) === placeOf(node)) continue;
      leaving.add(value);
      if (placeOf(node) === onGpu) toGpu.add(value);
      else if (placeOf(from) === onGpu) toCpu.add(value);
    }
  }
  const members: PreparedNode[][] = plan.segments.map(() => []);
  for (const node of order) if (placeOf(node) !== onGpu) members[placeOf(node)]!.push(...node.nodes);
  const cpu = plan.segments.map(({ core }, index): CpuShare => ({
    core,
    ...partOfGraph(prepared, members[index]!, maker, leaving),
  }));
  const gpuNodes = order.flatMap((node) => (placeOf(node) === onGpu ? node.nodes : []));
  for (const value of [...toGpu, ...toCpu]) {
    if (!prepared.values.has(value))
      throw invalid(plan, `'${value}' crosses to or from the GPU, and its shape is not known`);
  }
  mustEnd(plan, order, placeOf, maker, cpu);
  return {
    /**
     * The GPU's nodes in the plan's order, with the crossing values among its inputs and outputs; null if the plan is all
     * on the CPU.
     */
    gpu: gpuNodes.length === 0 ? null : gpuShare(prepared, gpuNodes, toGpu, leaving),
    /** One for each segment of the plan. */
    cpu,
    /** Values that cores make and the GPU reads. */
    toGpu: [...toGpu],
    /** Values that the GPU makes and cores read. */
    toCpu: [...toCpu],
  };
}

const onGpu = -1;

const invalid = (plan: HybridPlan, message: string): GpuError =>
  new GpuError('invalid', `plan '${plan.id}' cannot be carried out: ${message}`);

function orderOf(plan: HybridPlan, byName: ReadonlyMap<string, PlannedOperator>): PlannedOperator[] {
  const order = plan.order.map((name) => {
    const node = byName.get(name);
    if (node === undefined) throw invalid(plan, `it places '${name}', which is no operator of the function`);
    return node;
  });
  if (new Set(order).size !== order.length) throw invalid(plan, 'an operator stands in its order twice');
  if (order.length !== byName.size) {
    const placed = new Set(plan.order);
    const missing = [...byName.keys()].find((name) => !placed.has(name));
    throw invalid(plan, `operator '${missing}' is not in its order`);
  }
  const done = new Set<string>();
  const made = new Set(order.flatMap(({ outputs }) => outputs));
  for (const node of order) {
    const early = node.uses.find((value) => made.has(value) && !done.has(value));
    if (early !== undefined) throw invalid(plan, `operator '${node.name}' stands before '${early}' is made`);
    for (const value of node.outputs) done.add(value);
  }
  return order;
}

/** The GPU's share. Its layers must ascend, so a node takes the highest layer of the nodes before it in the plan. */
function gpuShare(
  prepared: PreparedGraph,
  nodes: readonly PreparedNode[],
  toGpu: ReadonlySet<string>,
  leaving: ReadonlySet<string>,
): PreparedGraph {
  let layer = 0;
  const ordered = nodes.map((node): PreparedNode => {
    layer = Math.max(layer, node.layer);
    return { ...node, layer };
  });
  const used = new Set(nodes.flatMap(({ uses }) => uses));
  const outputs = nodes.flatMap((node) => node.outputs.filter((value) => leaving.has(value)));
  const names = new Set(nodes.map(({ name }) => name));
  return {
    ...prepared,
    nodes: ordered,
    inputs: [...prepared.inputs.filter((value) => used.has(value)), ...toGpu],
    outputs,
    obstacles: prepared.obstacles.filter(({ node }) => names.has(node)),
    early: new Set(outputs),
  };
}

/**
 * Refuses a plan with a deadlock between the GPU, which runs its operators strictly in order, and the segments, which
 * begin when their inputs are there. Cores run whichever segment is ready, so they cannot add to a deadlock.
 */
function mustEnd(
  plan: HybridPlan,
  order: readonly PlannedOperator[],
  placeOf: (node: PlannedOperator) => number,
  maker: ReadonlyMap<string, PlannedOperator>,
  cpu: readonly CpuShare[],
): void {
  const parts = cpu.map(({ inputs, nodes }) => ({ inputs, outputs: nodes.flatMap(({ outputs }) => outputs) }));
  const arrivals = new Arrivals(maker.keys(), parts);
  for (const node of order) {
    if (placeOf(node) !== onGpu) continue;
    const missing = arrivals.missing(node.uses);
    if (missing !== undefined) throw invalid(plan, `'${node.name}' waits for '${missing}', which waits for it`);
    arrivals.come(node.outputs);
  }
  arrivals.settle();
  const stuck = parts.findIndex((part) => arrivals.waiting.has(part));
  if (stuck >= 0) throw invalid(plan, `segment ${stuck} and another wait for each other`);
}
