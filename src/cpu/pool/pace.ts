/**
 * How many calls go to an on-demand instance as one message, and when another instance is worth waking. Waiting calls are
 * sent in their order,
 *   1. to a busy instance ahead of time, while all of them are less than `nextInstanceMs` of work: the instance then finds
 *      its next work queued, and waking another would cost more than it brings;
 *   2. else to an idle instance, when the cores allow another run;
 *   3. else, if runs are short, to a busy one after all.
 * A message of a function that does not batch holds as many runs as make up `aheadMs` of work: for a run of some
 * microseconds the way to the instance and back costs more than the run, and sharing it doubles the throughput.
 */
import type { WaitingCalls } from './waiting-calls.ts';

/** Milliseconds of work that one message may hold, and the most runs in it. */
const aheadMs = 1;
const aheadRunsMax = 32;
/**
 * Milliseconds of waiting work that justify another instance, and how long a call waits for that work to be done as
 * soon as expected. For calls of some microseconds the host itself is the limit; on two cores a second process then
 * costs a fifth of the throughput.
 */
const nextInstanceMs = 2;
export const patienceMs = 5;
/** Weight of a longer measurement in the expected time of a call; a shorter one counts at once. */
const slowerWeight = 0.05;
const steadyMessages = 8;

export class Pace {
  /**
   * Time of one call on an instance with a core for itself; undefined before the first. On a busy machine most
   * measurements include waiting for a core, so the short ones are believed.
   */
  #callMs: number | undefined;
  #messages = 0;

  get callMs(): number | undefined {
    return this.#callMs;
  }

  /** The same, once there are enough measurements that one slowed down by waiting for a core does not matter. */
  get steadyCallMs(): number | undefined {
    return this.#messages >= steadyMessages ? this.#callMs : undefined;
  }

  /** A message of so many calls took an instance `busyMs`. */
  ran(calls: number, busyMs: number): void {
    const callMs = busyMs / calls;
    this.#messages++;
    const beliefMs = this.#callMs ?? callMs;
    this.#callMs = callMs < beliefMs ? callMs : beliefMs + slowerWeight * (callMs - beliefMs);
  }

  /** Whether the waiting calls are served soonest by an instance that is busy now. */
  littleWaits({ first, length }: WaitingCalls, nowMs: number): boolean {
    if (this.#callMs === undefined || first === undefined) return false;
    return length * this.#callMs <= nextInstanceMs && nowMs - first.arrivalMs < patienceMs;
  }

  /** Whether its messages are so short that others may be queued behind them. */
  get isShort(): boolean {
    return this.callsPerMessage > 1;
  }

  /** Calls of one message: as many as make up `aheadMs` of work; 1 while that is unknown. */
  get callsPerMessage(): number {
    if (this.#callMs === undefined) return 1;
    return Math.max(1, Math.min(aheadRunsMax, Math.floor(aheadMs / this.#callMs)));
  }
}
