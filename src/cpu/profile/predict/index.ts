/** Predicts what pools do under load: pure functions of a measured profile. */
export { simulateBatches, type BatchPrediction, type BatchSimulationOptions } from './batch-simulation.ts';
export {
  candidatesOf,
  coresOf,
  groupsText,
  leastDivided,
  listsToMeasure,
  sameGroups,
  type BatchedCandidate,
  type Candidate,
  type UnbatchedCandidate,
} from './candidates.ts';
export {
  parseCpuProfile,
  type CpuProfile,
  type MeasuredList,
  type MeasuredOn,
  type ServiceVariation,
} from './cpu-profile.ts';
export { idleExtraMs, type IdleCost } from './idle-cost.ts';
export { instanceMs } from './instance-time.ts';
export { LivePrediction, type ArrivalPrediction, type PoolSnapshot, type PredictionCheck } from './live-prediction.ts';
export { PoolTable, type BatchChoice, type Choice, type PoolObjective, type PoolTableOptions } from './pool-table.ts';
export type { PoolPrediction } from './service-latency.ts';
