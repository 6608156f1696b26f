/**
 * The planners, as functions of profiles: data in, data out. Times are in milliseconds, memory is in bytes, rates are per
 * second, and the names say so. The forms of profiles, and their checks, are in `turntable/profile`.
 *
 * @module
 */
export * from './chrion/index.ts';
export * from './deepplan/index.ts';
export * from './packrat/index.ts';
export { PlanError } from './plan-error.ts';
export * from './serf/index.ts';
