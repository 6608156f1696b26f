/**
 * Where a call would be answered first: at which host, over a kept connection, or at which worker, through BullMQ. By what
 * the members offer, and by what this member gave them that their latest reports do not know of.
 */
import { earliest, hashText, rankScore, type MemberAnswer } from '../schedule/index.ts';
import { getOrMake } from '../tools/index.ts';
import { reportEveryMs, type Membership } from './membership.ts';
import { shareMs, unmeasuredMs, type FunctionOffer } from './offers.ts';
import type { Member } from './types.ts';

/** Reports tell a figure anew when it has changed by a quarter, so that closer ones are equal. */
const equalShare = 0.25;
/** A report says what was so when it was written; the next one is written, and read, an interval later each. */
const reportedAfterMs = 2 * reportEveryMs;

/** A member that takes the function. */
export interface Candidate extends MemberAnswer {
  readonly at: Member;
  readonly offer: FunctionOffer;
  /** Part of `ms` until the function could run there: starting, and fetching the model. */
  readonly startMs: number;
}

export interface CallWay {
  /** The way there and back. */
  readonly wayMs: number;
  /** Fetching the function's content, where a member does not have it; default: it is not asked. */
  readonly fetchMs?: number;
  /** What a call takes here: assumed where the function was never called. */
  readonly ownMs?: number | undefined;
}

/** What a member was given since its latest report. */
interface Given {
  /** Milliseconds of work given to it, less work taken from it. */
  ms: number;
  /** Functions that it had to start for a call of this member. */
  readonly starts: Map<string, { readonly atMs: number; leftMs: number }>;
}

export class MemberChoice {
  readonly #membership: Membership;
  readonly #given = new Map<string, Given>();

  constructor(membership: Membership) {
    this.#membership = membership;
    membership.follow({
      heard: ({ name }) => this.#heard(name),
      gone: ({ name }) => void this.#given.delete(name),
    });
  }

  /** Those that offer a function, unless they drain. */
  *offering(
    field: string,
    kind: Member['kind'],
  ): Generator<{ readonly member: Member; readonly offer: FunctionOffer }> {
    for (const [name, offer] of this.#membership.offers.of(field) ?? []) {
      const member = this.#membership.find(name);
      if (member?.kind === kind && !member.draining) yield { member, offer };
    }
  }

  /** What a member means for a call that is sent now. A start delays its other calls as well, and so counts twice. */
  candidate(field: string, at: Member, offer: FunctionOffer, way: CallWay): Candidate {
    const { wayMs, fetchMs = Infinity, ownMs = unmeasuredMs } = way;
    const { ms: givenMs = 0, starts } = this.#given.get(at.name) ?? {};
    const own = starts?.get(field);
    const { isHeld, startMs: toldMs = 0, callMs = ownMs } = offer;
    const startMs = own?.leftMs ?? toldMs + (isHeld ? 0 : fetchMs);
    const toldAnswerMs = offer.ms ?? toldMs + at.backlogMs + callMs;
    let ms = wayMs + Math.max(0, givenMs) + Math.max(0, toldAnswerMs - toldMs + startMs);
    for (const other of starts?.values() ?? []) if (other !== own) ms += other.leftMs;
    return { member: at.name, ms, costMs: ms + (own === undefined ? startMs : 0), at, offer, startMs };
  }

  /**
   * The worker that would answer first. Of workers that are equal the function's home gets the call, so that functions
   * are divided over the workers instead of being started at each, or all at one.
   */
  worker(field: string, except: ReadonlySet<string>, way: CallWay): Candidate | undefined {
    const hash = hashText(field);
    const scoreOf = ({ name, cores }: Member): number => rankScore(hash, hashText(name), cores);
    const workers = [...this.offering(field, 'worker')]
      .filter(({ member }) => !except.has(member.name))
      .map(({ member, offer }) => ({ score: scoreOf(member), candidate: this.candidate(field, member, offer, way) }))
      .sort((a, b) => b.score - a.score);
    const ranked = workers.map(({ candidate }) => candidate);
    return earliest(ranked, equalShare);
  }

  /** Adds a call of the function to a member's work. */
  give(field: string, name: string, fetchMs = 0): void {
    const offer = this.#membership.offers.of(field)?.get(name);
    if (offer === undefined) return;
    const given = getOrMake(this.#given, name, (): Given => ({ ms: 0, starts: new Map() }));
    given.ms += shareMs(offer);
    const leftMs = (offer.startMs ?? 0) + (offer.isHeld ? 0 : fetchMs);
    if (leftMs > 0 && !given.starts.has(field)) given.starts.set(field, { atMs: performance.now(), leftMs });
  }

  /** It was answered, or taken back: it has started, if it had to. */
  taken(field: string, name: string): void {
    const offer = this.#membership.offers.of(field)?.get(name);
    const given = this.#given.get(name);
    if (offer === undefined || given === undefined) return;
    given.ms -= shareMs(offer);
    const start = given.starts.get(field);
    if (start !== undefined) start.leftMs = 0;
  }

  #heard(name: string): void {
    const given = this.#given.get(name);
    if (given === undefined) return;
    // The new report includes the work given and taken before it.
    given.ms = 0;
    const toldMs = performance.now() - reportedAfterMs;
    for (const [field, { atMs }] of given.starts) {
      const isStarted = this.#membership.offers.of(field)?.get(name)?.startMs === 0;
      if (isStarted || atMs < toldMs) given.starts.delete(field);
    }
  }
}
