/** Runs pools on CPU cores: instance processes, dispatcher, handlers. */
export * from './types.ts';
export { createCpuPools, type CpuPoolsOptions, type GivenUp, type Loaded } from './pools.ts';
export type { Handler, HandlerCall, HandlerTensor } from './handler.ts';
export * from './estimator.ts';
export * from './measure/index.ts';
export * from './predict/index.ts';
