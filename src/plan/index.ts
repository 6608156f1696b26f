/** The planners: DeepPlan, Chrion, Packrat and SERF. Pure: data in, data out. */
export * from './deepplan/index.ts';
export { PlanError } from './plan-error.ts';
