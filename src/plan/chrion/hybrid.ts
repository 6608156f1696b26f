import type { ChrionPlan } from './plan.ts';

/**
 * The plan in the form that the engine executes; the same shape as its `HybridPlan`.
 *
 * @param id names the plan among those of its function
 */
export function hybridPlanOf({ operators, segments }: ChrionPlan, id: string) {
  return {
    id,
    /** Every operator, after its inputs: the GPU executes its share in this order. */
    order: operators.map(({ name }) => name),
    /** Calls on cores, in each core's order. Operators in no call run on the GPU. */
    segments: segments.map(({ core, operators: names }) => ({ core, operators: names })),
  };
}
