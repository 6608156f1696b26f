/** The pool of one function, and the cores that pools share. */
export { instancesOf } from './configuration.ts';
export * from './cores.ts';
export { PoolLoad } from './facts.ts';
export { ListSwaps, type ListMember } from './list-swaps.ts';
export { callsIn, isAlikeOffer, offeredList } from './offer.ts';
export { Pool } from './pool.ts';
export * from './resources.ts';
