/** What the hosts of a fleet tell each other. Nothing here runs. */
import type { OffersTold } from './offers.ts';

/** What a host says of itself, twice a second. */
export interface HostReport {
  /** Where other hosts reach it. */
  readonly url: string;
  /** Of the way in which hosts talk to each other. */
  readonly protocol: number;
  readonly hostVersion: string;
  /** Takes no new calls of others, and is nobody's home. */
  readonly draining: boolean;
  readonly cores: number;
  readonly gpus: number;
  /** Calls that it has and has not answered. */
  readonly inFlight: number;
  /** Of these, how many wait for a place. */
  readonly waiting: number;
  readonly offers: OffersTold;
  /** Functions whose content it has. */
  readonly functions: number;
}

/** A host of the fleet as the others know it. */
export interface Member extends HostReport {
  /** Host and port of its address: it keeps that, and so its functions, over a restart. */
  readonly name: string;
  /** Different for each start. */
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly startedAtMs: number;
  /** Counts its reports. */
  readonly beat: number;
}

/** How a host stands with the one that is asked. */
export interface MemberView extends Member {
  readonly isSelf: boolean;
  readonly state: 'up' | 'draining' | 'sick';
  /** Why it is sick; '' where it is not. */
  readonly reason: string;
  /** Since its latest report. */
  readonly heardMsAgo: number;
  /** The way there and back, as measured; undefined before the first time. */
  readonly roundTripMs: number | undefined;
}

export interface FleetLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/**
 * Hosts of other numbers are left alone: how they talk has changed in between. A host takes its own and the one before.
 */
export const protocolNow = 1;
export const speaks = (protocol: number): boolean => protocol === protocolNow || protocol === protocolNow - 1;
