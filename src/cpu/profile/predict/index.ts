/** Predicts what pools do under load: pure functions of a measured profile. */
export { simulateBatches } from './batch-simulation.ts';
export * from './candidates.ts';
export * from './cpu-profile.ts';
export * from './idle-cost.ts';
export { instanceMs } from './instance-time.ts';
export * from './list-times.ts';
export * from './live-prediction.ts';
export * from './pool-table.ts';
export { slowdownBeside, Slowdowns, type PoolPrediction } from './slowdowns.ts';
