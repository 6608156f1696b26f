/** What the hosts of a fleet tell each other. Nothing here runs. */
import type { OffersTold } from './offers.ts';

/** What a host says of itself, twice a second. */
export interface HostReport {
  /** Where other hosts reach it. */
  readonly url: string;
  /** The lowest version of the protocol that it speaks: all that a host of the first release looks at. */
  readonly protocol: number;
  /** Versions of the protocol that it speaks; absent: that one alone. */
  readonly protocols?: readonly number[];
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
  readonly state: 'up' | 'draining' | 'sick' | 'lost';
  /** Why it is sick; '' where it is not. */
  readonly reason: string;
  /** Since its latest report; all else of a lost host is as that said. */
  readonly heardMsAgo: number;
  /** The way there and back, as measured; undefined before the first time. */
  readonly roundTripMs: number | undefined;
  /** The version of the protocol that both talk in; of this host, and of one to which there is none, its highest. */
  readonly talksIn: number;
}

export interface FleetLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/**
 * Versions of the protocol between hosts. Two hosts talk in the highest one that both speak, so that a fleet can be
 * upgraded host by host.
 *
 * - 2: membership, registry, content by ranges; calls and parts of them are passed on as HTTP requests
 * - 3: calls are passed on as frames over connections of their own
 */
export const protocolsSpoken = { oldest: 2, newest: 3 } as const;

/** What a host speaks that is held back to `newest`. */
export function protocolsUpTo(newest: number): readonly number[] {
  const { oldest } = protocolsSpoken;
  return Array.from({ length: newest - oldest + 1 }, (_, index) => oldest + index);
}

export const protocolsOf = ({ protocol, protocols = [protocol] }: HostReport): readonly number[] => protocols;

/** The one that two hosts talk in; undefined: there is none. */
export function commonProtocol(mine: readonly number[], theirs: readonly number[]): number | undefined {
  const common = mine.filter((each) => theirs.includes(each));
  return common.length === 0 ? undefined : Math.max(...common);
}
