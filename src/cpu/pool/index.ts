/** The pool of one function, and the cores that pools share. */
export { instancesOf, stepTo, withoutOne, type ListStep, type PlannedInstance } from './configuration.ts';
export * from './cores.ts';
export { PoolLoad } from './facts.ts';
export { Pool } from './pool.ts';
export * from './resources.ts';
