import type { ChrionPlan } from './plan.ts';

/** What an engine needs of a plan to carry it out; the same shape as its own `HybridPlan`. */
export interface HybridShares {
  readonly id: string;
  /** Every operator, each after what it takes: the GPU executes its share in this order. */
  readonly order: readonly string[];
  /** Calls on cores, each core's in the order in which it makes them; operators in none of them run on the GPU. */
  readonly segments: readonly { readonly core: number; readonly operators: readonly string[] }[];
}

/** @param id names the plan among those of its function */
export function hybridPlanOf({ operators, segments }: ChrionPlan, id: string): HybridShares {
  return {
    id,
    order: operators.map(({ name }) => name),
    segments: segments.map(({ core, operators: names }) => ({ core, operators: names })),
  };
}
