/** A fleet of hosts on one Redis: its members, its functions, and the connections between hosts. */
export { CallLink, linkNonceHeader, linkTarget } from './call-link.ts';
export { Fleet, type FleetOptions } from './fleet.ts';
export type { FunctionOffer, OfferChange } from './offers.ts';
export { PeerLost, type PeerReply } from './peers.ts';
export { isFromFleet, type PeerSender } from './seal.ts';
export type { HostReport, Member, MemberView } from './types.ts';
