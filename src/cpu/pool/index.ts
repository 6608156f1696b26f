/** The pool of one function, and the cores that pools share. */
export { instancesOf, missingThreads } from './configuration.ts';
export * from './cores.ts';
export { Pool } from './pool.ts';
export * from './resources.ts';
