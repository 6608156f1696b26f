/** Decides what runs where, what is loaded and what is evicted, from events and their times alone. */
export {
  batchDueMs,
  coresIn,
  instancesIn,
  nextBatch,
  slotsOf,
  type BatchCall,
  type BatchPlace,
  type PoolConfiguration,
  type PoolGroup,
} from './batches.ts';
export { BatchList } from './batch-list.ts';
export { LatencyBook } from './latency-book.ts';
export { goesAtOnce, idleOnDemand, mayGrow, nextOnDemand, Pace, type DemandList } from './on-demand.ts';
export { chooseHost, earliest, type HostReason, type MemberAnswer } from './fleet/choose-member.ts';
export {
  assignHomes,
  capacityOf,
  coreWorth,
  homeLimits,
  type CallCost,
  type FleetFunction,
  type FleetMember,
} from './fleet/homes.ts';
export { hashText, rankScore } from './fleet/rank.ts';
export type { Lanes } from './lanes.ts';
export { Learnt } from './learnt.ts';
export type { ServedFunction } from './function.ts';
export type { Invocation } from './invocation.ts';
export { WorkerSlots } from './worker-slots.ts';
export { Ranks } from './fleet/ranks.ts';
export { LoadMeter } from './fleet/load.ts';
export {
  batchMs,
  batchSizes,
  checkVariants,
  isClose,
  scaledOffer,
  variantNamed,
  wholeBytes,
  wholePrefix,
  leastOf,
  withBatches,
  type BatchShare,
  type BatchTime,
  type LoadOption,
  type CpuOffer,
  type GpuOffer,
  type HostBlock,
  type OfferSheet,
  type SharedPrefix,
  type SideOffer,
} from './offer.ts';
export { gpuOffers, schedulerGpus } from './offer-of-plan.ts';
export { policies, policyChoices, policyNames, type Foresight, type Policy, type PolicyName } from './policy.ts';
export { tuning } from './tuning.ts';
export { named, type FunctionId, type Given, type GpuId, type InvocationId, type SideId } from './ids.ts';
export type { HostWait } from './host-memory.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
export type {
  Action,
  Companion,
  CpuPlace,
  Decision,
  EvictionCause,
  FailReason,
  HostTier,
  Join,
  LoadOrder,
  Observation,
  PlaceId,
  PlaceReason,
  SchedulerEvent,
  SchedulerGpu,
  Start,
  WorkersPlace,
} from './types.ts';
