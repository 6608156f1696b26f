/**
 * Plan variants of functions: the only entry. The code that makes them is imported with the first function that may
 * have some.
 */
export { makeVariants } from './make-variants.ts';
export { parseVariantTimes } from './timed-variants.ts';
export { VariantPlanner } from './variant-planner.ts';
