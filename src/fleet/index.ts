/** The members on one Redis, hosts and workers: who is there, what each offers, and the connections between hosts. */
export { Fleet } from './fleet.ts';
export { MemberListener, type Serve } from './listener.ts';
export { goneAfterMs, Membership, reportEveryMs } from './membership.ts';
export { MemberChoice, type Candidate } from './member-choice.ts';
export { shareMs, triedMax, type FunctionOffer, type OfferChange } from './offers.ts';
export { PeerLost } from './peers.ts';
export { isMemberName, type MemberPems, type MemberTls } from './tls.ts';
export type { Change, ChangeWriterOptions } from './changes.ts';
export type { Asked, Member, MemberReport, MemberView } from './types.ts';
