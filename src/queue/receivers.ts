/**
 * How many callbacks are on their way to one receiver: one that hangs would else hold up those to all others. What is
 * over the limit is put off until its turn, as the receiver's own speed has it.
 */
import { smoothed } from './predict.ts';

/** Before any was answered. */
const unmeasuredMs = 10;
/** What was put off is looked at again at the latest then: the receiver may be quick again. */
const [putOffMsMin, putOffMsMax] = [20, 30_000];

interface Receiver {
  /** When each that is under way began, the first one first. */
  readonly startsMs: Set<{ readonly atMs: number }>;
  callMs: number;
  /** When the last that was put off has its turn. */
  turnMs: number;
}

/** A place to send from, given back by `end`; or how long to wait before asking again. */
export type Turn = { readonly end: (nowMs: number) => void } | { readonly putOffMs: number };

/** Instants are milliseconds on a clock of the caller's. */
export class Receivers {
  readonly #atOnce: number;
  readonly #receivers = new Map<string, Receiver>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  begin(origin: string, nowMs: number): Turn {
    let receiver = this.#receivers.get(origin);
    if (receiver === undefined) {
      receiver = { startsMs: new Set(), callMs: unmeasuredMs, turnMs: nowMs };
      this.#receivers.set(origin, receiver);
    }
    const { startsMs } = receiver;
    if (startsMs.size >= this.#atOnce) return { putOffMs: this.#putOffMs(receiver, nowMs) };
    const start = { atMs: nowMs };
    startsMs.add(start);
    const known = receiver;
    const end = (endMs: number): void => {
      if (!startsMs.delete(start)) return;
      known.callMs = smoothed(known.callMs, endMs - nowMs);
      if (startsMs.size === 0) this.#receivers.delete(origin);
    };
    return { end };
  }

  #putOffMs(receiver: Receiver, nowMs: number): number {
    const [oldest] = receiver.startsMs;
    // While none is answered, how long the first has waited is all that is known.
    const callMs = Math.max(receiver.callMs, nowMs - (oldest?.atMs ?? nowMs));
    receiver.turnMs = Math.min(Math.max(receiver.turnMs, nowMs) + callMs / this.#atOnce, nowMs + putOffMsMax);
    return Math.max(putOffMsMin, receiver.turnMs - nowMs);
  }
}
