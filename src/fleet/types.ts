/** The messages between members of a fleet, and what they say of themselves. Types and plain data only. */
import type { FunctionOffer } from './offers.ts';
import type { ChangesReport } from './changes.ts';

/** What a host or a worker says of itself, twice a second. */
export interface MemberReport {
  readonly kind: 'host' | 'worker';
  /** Of a host: its fleet, if it is in one. Workers take calls of all hosts. */
  readonly fleet?: string | undefined;
  /** For people; a host's name, or what a worker is called. */
  readonly title: string;
  /** Of a host: where clients reach it. */
  readonly url?: string | undefined;
  readonly hostVersion: string;
  /** Takes no new calls, and is no function's home. */
  readonly draining: boolean;
  readonly cores: number;
  readonly gpus: number;
  /** Its unanswered calls. */
  readonly inFlight: number;
  /** How many of these wait for a place. */
  readonly waiting: number;
  /** Milliseconds that it needs for them, as far as it says. */
  readonly backlogMs: number;
  /** Functions whose content it has. */
  readonly functions: number;
  /** Bytes of models on a worker's disk, and their limit. */
  readonly cacheBytes?: number | undefined;
  readonly cacheBytesMax?: number | undefined;
}

/** A member, as the others know it. */
export interface Member extends MemberReport {
  /**
   * Of a host in a fleet: host and port where other members reach it. They stay over a restart, and with them its
   * functions. Of others: their id.
   */
  readonly name: string;
  /** Different for each start. */
  readonly id: string;
  /** See {@link fleetFormat}. */
  readonly format: number;
  /** Milliseconds since 1970. */
  readonly startedAtMs: number;
  /** Counts its reports. */
  readonly beat: number;
  readonly offers: ChangesReport<FunctionOffer>;
  /** Of a host: what workers need to run its functions; src/queue reads them. */
  readonly manifests: ChangesReport<unknown>;
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
export const fleetFormat = 6;
