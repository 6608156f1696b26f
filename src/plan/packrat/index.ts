/** Packrat: which instances, with how many threads and items each, finish a batch first on the cores of a machine. */
export * from './plan.ts';
