/** Random plans for a graph, from a seed: everything a planner may produce, and more. */
import type { PreparedGraph, PreparedNode } from '../../../src/gpu/program/prepared.ts';
import { livingNodes } from '../../../src/gpu/program/prepared.ts';
import type { HybridPlan, HybridSegment } from '../../../src/gpu/hybrid/types.ts';

export type Random = () => number;

/** Mulberry32. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A valid order of the nodes, all orders equally likely. */
export function randomOrder(nodes: readonly PreparedNode[], random: Random): PreparedNode[] {
  const made = new Set(nodes.flatMap(({ outputs }) => outputs));
  const done = new Set<string>();
  const left = [...nodes];
  const order: PreparedNode[] = [];
  while (left.length > 0) {
    const ready = left.filter(({ uses }) => uses.every((value) => !made.has(value) || done.has(value)));
    const node = ready[Math.floor(random() * ready.length)]!;
    left.splice(left.indexOf(node), 1);
    for (const value of node.outputs) done.add(value);
    order.push(node);
  }
  return order;
}

export interface RandomPlanOptions {
  readonly id: string;
  readonly cores: number;
  /** Share of the operators that run on the CPU. */
  readonly cpuShare: number;
  /** Probability that an operator joins the segment before it on its core, if it can. */
  readonly merge?: number;
  readonly mustBeOnCpu?: ReadonlySet<string>;
}

export function randomPlan(prepared: PreparedGraph, random: Random, options: RandomPlanOptions): HybridPlan {
  const { id, cores, cpuShare, merge = 0.5, mustBeOnCpu = new Set() } = options;
  const order = randomOrder(livingNodes(prepared), random);
  const segments: { core: number; operators: string[] }[] = [];
  /** By core: the segment that may grow, until an operator is placed elsewhere. */
  let open: { core: number; operators: string[] } | undefined;
  for (const { name } of order) {
    if (!mustBeOnCpu.has(name) && random() >= cpuShare) {
      open = undefined;
      continue;
    }
    const core = 1 + Math.floor(random() * cores);
    if (open !== undefined && random() < merge) open.operators.push(name);
    else {
      open = { core, operators: [name] };
      segments.push(open);
    }
  }
  return { id, order: order.map(({ name }) => name), segments: segments satisfies HybridSegment[] };
}
