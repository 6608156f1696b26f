/** A fleet of hosts on one Redis: its members, what each offers, and the connections between them. */
export { Fleet } from './fleet.ts';
export { MemberListener, type Serve } from './listener.ts';
export type { FunctionOffer, OfferChange } from './offers.ts';
export { PeerLost } from './peers.ts';
export { isMemberName, type MemberPems, type MemberTls } from './tls.ts';
export type { Asked, Member, MemberView } from './types.ts';
