/**
 * Which member of a fleet runs a call: the host where it arrived, another host, or a worker. Pure functions, shared by real
 * and simulated members.
 */

/** What a member would mean for the call. */
export interface MemberAnswer {
  readonly member: string;
  /** Predicted milliseconds until its answer is here, with the way there and back. Infinity: it cannot run there now. */
  readonly ms: number;
  /** Those, and the milliseconds by which the call delays others there; default: `ms`. */
  readonly costMs?: number;
}

/** Differences below this are noise in the predictions. */
const sameMs = 0.5;

/**
 * The first, in the order of preference, of those that cost least. Undefined if none can run the call.
 *
 * @param sameShare by how much more one may cost and still count as equal
 */
export function earliest<Answer extends MemberAnswer>(inOrder: readonly Answer[], sameShare = 0): Answer | undefined {
  const costOf = ({ ms, costMs = ms }: MemberAnswer): number => costMs;
  const leastMs = inOrder.reduce((least, answer) => Math.min(least, costOf(answer)), Infinity);
  if (leastMs === Infinity) return undefined;
  const mostMs = leastMs + Math.max(sameMs, sameShare * leastMs);
  return inOrder.find((answer) => costOf(answer) <= mostMs);
}

export interface CallAtHost {
  /** The host that has the call, whether or not it is one of the homes. */
  readonly own: MemberAnswer;
  /** Homes that are up, in order of preference; the host that has the call may be one of them. */
  readonly homes: readonly MemberAnswer[];
  /** Milliseconds until the answer is late. */
  readonly leftMs: number;
}

/**
 * `home`: the host is the function's first home. `other-home`: another home answers earlier. `spill`: every home would be
 * late, and the host that has the call would not. `no-home`: no home can run it.
 */
export type HostReason = 'home' | 'other-home' | 'spill' | 'no-home';

export interface HostChoice {
  readonly member: string;
  readonly reason: HostReason;
}

export function chooseHost({ own, homes, leftMs }: CallAtHost): HostChoice {
  const best = earliest(homes);
  if (best === undefined) return { member: own.member, reason: 'no-home' };
  if (best.ms > leftMs && own.ms <= leftMs) return { member: own.member, reason: 'spill' };
  return { member: best.member, reason: best === homes[0] ? 'home' : 'other-home' };
}
