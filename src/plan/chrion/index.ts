/** Chrion: divides a graph between a GPU and CPU cores, for less latency or less GPU memory. */
export * from './plan-variants.ts';
export { hybridPlanOf, planChrion, planCpuOnly, planGpuOnly, planMemoryOptimal, type ChrionPlan } from './plan.ts';
export type { ChrionOptions } from './search.ts';
