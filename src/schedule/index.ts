/** Decides what runs where, what is loaded and what is evicted, from events and their times alone. */
export { chooseHost, type CallAtHost, type HostChoice, type HostOffer, type HostReason } from './fleet/choose-host.ts';
export {
  assignHomes,
  homeLimits,
  rankMembers,
  type FleetFunction,
  type FleetMember,
  type Home,
} from './fleet/homes.ts';
export { LoadMeter } from './fleet/load.ts';
export {
  batchMs,
  batchSizes,
  checkVariants,
  scaledOffer,
  variantNamed,
  wholeBytes,
  wholePrefix,
  leastWarmMs,
  withBatches,
  type BatchShare,
  type BatchTime,
  type LoadOption,
  type CpuOffer,
  type GpuOffer,
  type HostBlock,
  type LinkTransfer,
  type OfferSheet,
  type WorkersOffer,
} from './offer.ts';
export { gpuOffers, schedulerGpus } from './offer-of-plan.ts';
export { policies, policyChoices, policyNames, type Foresight, type Policy, type PolicyName } from './policy.ts';
export { tuning } from './tuning.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
export {
  type Action,
  type Companion,
  type CpuPlace,
  type Decision,
  type EvictionCause,
  type FailReason,
  type HostTier,
  type StageObservation,
  type Join,
  type LoadOrder,
  type Observation,
  type PlaceId,
  type PlaceReason,
  type SchedulerEvent,
  type SchedulerGpu,
  type Shell,
  type SideId,
  type Start,
  type WorkersPlace,
} from './types.ts';
