/** DeepPlan: the fastest start for a function that is not on the GPU. */
export * from './algorithm.ts';
export type { Span } from './link-clock.ts';
export { planColdStart, type PlanOptions } from './plan.ts';
export * from './residency.ts';
export * from './timeline.ts';
export * from './transmission.ts';
export { methodsWithin } from './within.ts';
export * from './types.ts';
