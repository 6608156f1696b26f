/** Runs programs on the GPUs of a machine: weights by layers, cold starts by plans, residency, accounting. */
export { Engine, type EngineOptions, type LoadOptions } from './engine.ts';
