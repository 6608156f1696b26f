/** This host as one of a fleet. */
export { fleetSecret } from './config-fleet.ts';
export { fateText } from './moves.ts';
export type { PassedWish, Routing } from './routing.ts';
export { FleetMember } from './fleet-member.ts';
