/** This host as one of a fleet. */
export { checkFleet } from './config-fleet.ts';
export { answerFrame, callIn, failureFrame, isHere, type PassedCall, type PassedTerms } from './passing.ts';
export type { Routing } from './routing.ts';
export { FleetMember } from './fleet-member.ts';
