/** What runs where, what is loaded for it and what goes: decided by events and their time alone. */
export {
  wholeBytes,
  wholePrefix,
  type ColdWay,
  type CpuOffer,
  type GpuOffer,
  type LinkTransfer,
  type OfferSheet,
} from './offer.ts';
export { gpuOffers, schedulerGpus, type MemoryOptions } from './offer-of-plan.ts';
export {
  admissions,
  borrowings,
  evictions,
  offloads,
  orders,
  policies,
  policyNames,
  routings,
  type Policy,
  type PolicyName,
} from './policy.ts';
export { checkLadder, rungNamed, rungsWithin } from './rungs.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
export { scaledOffer, type OfferFactors } from './scaled-offer.ts';
export type { Action, EvictionCause, FailReason, LoadOrder, SchedulerEvent, SchedulerGpu, Start } from './types.ts';
