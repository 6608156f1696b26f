/**
 * Which host of the fleet runs a call that arrived at one of them. A pure function, shared by real and simulated hosts.
 */

/** What a host would mean for the call. */
export interface HostOffer {
  readonly member: string;
  /** Predicted instant of the answer on that host. Infinity: it cannot run there now. */
  readonly endMs: number;
  /** Time to send the call there and the answer back; 0 for the host that has the call. */
  readonly roundTripMs: number;
}

export interface CallAtHost {
  /** The host that has the call, whether or not it is one of the homes. */
  readonly own: HostOffer;
  /** Homes that are up, in order of preference; the host that has the call may be one of them. */
  readonly homes: readonly HostOffer[];
  readonly deadlineMs: number;
  /** Another host passed the call on. It runs here, or else calls could circle. */
  readonly isPassedOn: boolean;
}

/**
 * `passed-on`: another host sent it here. `home`: the host is the function's first home. `other-home`: another home
 * answers earlier. `spill`: every home would be late, and the host that has the call would not. `no-home`: no home can
 * run it.
 */
export type HostReason = 'passed-on' | 'home' | 'other-home' | 'spill' | 'no-home';

export interface HostChoice {
  readonly member: string;
  readonly reason: HostReason;
  /** Predicted, the round trip included. */
  readonly endMs: number;
}

/** Differences below this are noise in the predictions: the earlier home in the order is taken. */
const sameMs = 0.5;

export function chooseHost({ own, homes, deadlineMs, isPassedOn }: CallAtHost): HostChoice {
  if (isPassedOn) return { member: own.member, reason: 'passed-on', endMs: own.endMs };
  let best: HostOffer | undefined;
  let bestEndMs = Infinity;
  for (const home of homes) {
    const endMs = home.endMs + home.roundTripMs;
    if (best === undefined ? endMs === Infinity : endMs >= bestEndMs - sameMs) continue;
    best = home;
    bestEndMs = endMs;
  }
  if (best === undefined) return { member: own.member, reason: 'no-home', endMs: own.endMs };
  if (bestEndMs > deadlineMs && own.endMs <= deadlineMs && own.member !== best.member) {
    return { member: own.member, reason: 'spill', endMs: own.endMs };
  }
  return { member: best.member, reason: best === homes[0] ? 'home' : 'other-home', endMs: bestEndMs };
}
