import type { ChrionPlan } from './plan.ts';

/** A plan in the form that the engine executes; the same shape as its `HybridPlan`. */
export interface HybridShares {
  readonly id: string;
  /** Every operator, after its inputs: the GPU executes its share in this order. */
  readonly order: readonly string[];
  /** Calls on cores, in each core's order. Operators in no call run on the GPU. */
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
