/** The pool of one function, and the cores that pools share. */
export { CoreAllocator, type CoreLease } from './cores.ts';
export { CoreTurns } from './core-turns.ts';
export { Pool } from './pool.ts';
export type { PoolResources } from './resources.ts';
