/** The messages between hosts of a fleet. Types and plain data only. */
import type { OffersTold } from './offers.ts';

/** A host's report about itself, twice a second. */
export interface HostReport {
  /** Where other hosts reach it. */
  readonly url: string;
  /** Versions of the protocol that it speaks. */
  readonly protocols: readonly number[];
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
  /** Host and port of its address: they stay over a restart, and with them its functions. */
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
  readonly state: 'up' | 'draining' | 'sick' | 'lost';
  /** Why it is sick; '' if it is not. */
  readonly reason: string;
  /** Since its latest report; all other fields of a lost host come from that report. */
  readonly heardMsAgo: number;
  /** The measured round trip; undefined before the first measurement. */
  readonly roundTripMs: number | undefined;
  /** The protocol version between the two; for this host, and for one without a common version, its highest. */
  readonly talksIn: number;
}

/**
 * Versions of the protocol between hosts. Two hosts use the highest one that both speak, so that a fleet can be
 * upgraded host by host.
 *
 * - 2: membership, registry, content by ranges; calls are passed on as HTTP requests
 * - 3: calls are passed on as frames over separate connections
 */
export const protocolsSpoken = { oldest: 2, newest: 3 } as const;

/** Versions that a host speaks if it is limited to `newest`. */
export function protocolsUpTo(newest: number): readonly number[] {
  const { oldest } = protocolsSpoken;
  return Array.from({ length: newest - oldest + 1 }, (_, index) => oldest + index);
}

/** The version that two hosts use; undefined: they share none. */
export function commonProtocol(mine: readonly number[], theirs: readonly number[]): number | undefined {
  const common = mine.filter((each) => theirs.includes(each));
  return common.length === 0 ? undefined : Math.max(...common);
}
