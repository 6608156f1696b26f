/**
 * The planners, as functions of profiles: data in, data out. Times are in milliseconds, memory is in bytes, rates are
 * per second, and the names say so. The forms of profiles, and their checks, are in `turntable/profile`.
 *
 * @module
 */
import type * as Chrion from './chrion/index.ts';
export type {
  ChrionOptions,
  ChrionPlan,
  HybridShares,
  VariantOptions,
  MemoryOptimalOptions,
  PlacedCopy,
  PlacedOperator,
  PlacedSegment,
} from './chrion/index.ts';
export * from './deepplan/index.ts';
export * from './packrat/index.ts';
export { PlanError } from './plan-error.ts';
export * from './serf/index.ts';
export { stackedPictures } from './timeline-picture.ts';
export { wholePlan } from './whole-plan.ts';

/** Chrion's planner, loaded when it is asked for: a host without a GPU never does. */
export const loadChrion = (): Promise<typeof Chrion> => import('./chrion/index.ts');
