/**
 * Limits how many callbacks are under way to one receiver; otherwise a receiver that hangs would delay all others.
 * Callbacks beyond the limit are postponed, for as long as the receiver's own speed suggests.
 */
import { getOrMake, smoothed } from '../tools/index.ts';

/** Before any was answered. */
const unmeasuredMs = 10;
/** Postponed callbacks are looked at again after this long at most: the receiver may be fast again. */
const [putOffMsMin, putOffMsMax] = [20, 30_000];

interface Receiver {
  /** When each of those under way began, the first one first. */
  readonly startsMs: Set<{ readonly atMs: number }>;
  callMs: number;
  /** When the last postponed callback has its turn. */
  turnMs: number;
}

/** Permission to send, returned by `end`; or how long to wait before asking again. */
export type Turn = { readonly end: (nowMs: number) => void } | { readonly putOffMs: number };

/** Instants are milliseconds on the caller's clock. */
export class Receivers {
  readonly #atOnce: number;
  readonly #receivers = new Map<string, Receiver>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  begin(origin: string, nowMs: number): Turn {
    const makeReceiver = (): Receiver => ({ startsMs: new Set(), callMs: unmeasuredMs, turnMs: nowMs });
    const receiver = getOrMake(this.#receivers, origin, makeReceiver);
    const { startsMs } = receiver;
    if (startsMs.size >= this.#atOnce) return { putOffMs: this.#putOffMs(receiver, nowMs) };
    const start = { atMs: nowMs };
    startsMs.add(start);
    const end = (endMs: number): void => {
      if (!startsMs.delete(start)) return;
      receiver.callMs = smoothed(receiver.callMs, endMs - nowMs);
      if (startsMs.size === 0) this.#receivers.delete(origin);
    };
    return { end };
  }

  #putOffMs(receiver: Receiver, nowMs: number): number {
    const [oldest] = receiver.startsMs;
    // Before any answer, the first one's waiting time is all that is known.
    const callMs = Math.max(receiver.callMs, nowMs - (oldest?.atMs ?? nowMs));
    receiver.turnMs = Math.min(Math.max(receiver.turnMs, nowMs) + callMs / this.#atOnce, nowMs + putOffMsMax);
    return Math.max(putOffMsMin, receiver.turnMs - nowMs);
  }
}
