/** Runs pools on CPU cores: instance processes, dispatcher, handlers. */
export * from './types.ts';
export { createCpuPools, type CpuPoolsOptions, type GivenUp, type Loaded } from './pools.ts';
export { heldUpMs } from './instance/index.ts';
export type { Handler, HandlerCall, HandlerTensor } from './instance/index.ts';
export * from './profile/index.ts';
