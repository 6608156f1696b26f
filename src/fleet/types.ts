/** The messages between members of a fleet. Types and plain data only. */
import type { OffersTold } from './offers.ts';

/** A host's report about itself, twice a second. */
export interface HostReport {
  /** Where clients reach it; the name is where other members do. */
  readonly url: string;
  /** See {@link fleetFormat}. */
  readonly format: number;
  readonly hostVersion: string;
  /** Takes no new calls of other hosts, and is no function's home. */
  readonly draining: boolean;
  readonly cores: number;
  readonly gpus: number;
  /** Its unanswered calls. */
  readonly inFlight: number;
  /** How many of these wait for a place. */
  readonly waiting: number;
  readonly offers: OffersTold;
  /** Functions whose content it has. */
  readonly functions: number;
}

/** A host of the fleet, as the others know it. */
export interface Member extends HostReport {
  /** Host and port where other members reach it: they stay over a restart, and with them its functions. */
  readonly name: string;
  /** Different for each start. */
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly startedAtMs: number;
  /** Counts its reports. */
  readonly beat: number;
}

/** A host's state, as seen by the host that is asked. */
export interface MemberView extends Member {
  readonly isSelf: boolean;
  readonly state: 'up' | 'draining' | 'sick';
  /** Why it is sick; '' if it is not. */
  readonly reason: string;
  /** Since its latest report. */
  readonly heardMsAgo: number;
  /** The measured round trip; undefined before the first measurement. */
  readonly roundTripMs: number | undefined;
}

/** The first frame on a connection between members. */
export interface Hello {
  readonly fleet: string;
  readonly format: number;
  /** Names of the member that opens it, and of the one that it means. */
  readonly from: string;
  readonly to: string;
}

/** The answer to a {@link Hello}: the id of this start of the member, or why it is refused. */
export type Greeting = { readonly id: string } | { readonly refused: string };

/** Of the requests that follow; `call` has more (src/host/fleet-member/passing.ts). */
export type Asked = { readonly ask: 'ping' | 'call' } | { readonly ask: 'drain'; readonly draining: boolean };

/**
 * Of reports and frames between members. Members of another format are left out by name: stop them one after the other,
 * behind a balancer that knows both.
 */
export const fleetFormat = 5;
