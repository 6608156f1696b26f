/**
 * The planners, as pure functions of profiles. Times are in milliseconds, memory in bytes, rates per second; names
 * carry the unit. Profiles and their checks are in `turntable/profile`.
 * @module
 */
import type * as Chrion from './chrion/index.ts';
export type { ChrionPlan } from './chrion/index.ts';
export * from './deepplan/index.ts';
export * from './packrat/index.ts';
export { PlanError } from './plan-error.ts';
export * from './serf/index.ts';
export { wholePlan } from './whole-plan.ts';

/** Chrion's planner, loaded on demand: a host without a GPU never loads it. */
export const loadChrion = (): Promise<typeof Chrion> => import('./chrion/index.ts');
