/**
 * What goes together to an instance on demand, and when another instance is worth waking. Calls are handed over by
 * priority, then arrival,
 *   1. while all that waits is less than `nextInstanceMs` of work, ahead of time to a busy instance, which then
 *      finds its next work lying ready: waking another would cost more than it brings;
 *   2. else to an idle instance, when the cores allow another run;
 *   3. else, where runs are short, to a busy one all the same.
 * What is handed over together, as one message, is up to `batchMax` rows to be joined into one run of the model; or,
 * for a function that does not batch, as many runs as make up `aheadMs` of work: for a run of some microseconds the way
 * to the instance and back costs more than the run, and sharing it gives twice the throughput.
 */
import type { TicketQueue } from './queue.ts';
import { goesAlone, type Ticket } from './ticket.ts';

/** Milliseconds of work that one message may hold, and the most runs that may make them up. */
const aheadMs = 1;
const aheadRunsMax = 32;
/**
 * Milliseconds of waiting work that are worth another instance, and how long anybody waits for that work to be done as
 * soon as expected. For calls of some microseconds the host itself is the limit; on two cores a second process then
 * takes a fifth of the throughput away.
 */
const nextInstanceMs = 2;
export const patienceMs = 5;
/** What a socket takes in at one read is 64 KiB; a message within it is neither cut in two nor put together again. */
const togetherBytesMax = 56 * 1024;
/** Weight of a longer measurement in how long a call is thought to take; a shorter one counts at once. */
const slowerWeight = 0.05;
const steadyMessages = 8;

export class HandOverRule {
  /**
   * How long an instance is at one call when it has a core for itself; undefined before the first. On a busy machine
   * most measurements hold time that the process only waited for a core, so the short ones are believed.
   */
  #callMs: number | undefined;
  #messages = 0;
  /** Its handler has invoked other functions: a call that waits for them would hold up the rest of its message. */
  invokesOthers = false;

  get callMs(): number | undefined {
    return this.#callMs;
  }

  /** The same, once so many have been measured that one which only waited for a core says nothing. */
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

  /** Whether those who wait are served soonest by waiting for an instance that is busy now. */
  littleWaits({ front, length }: TicketQueue, nowMs: number): boolean {
    if (this.#callMs === undefined || front === undefined) return false;
    return length * this.#callMs <= nextInstanceMs && nowMs - front.arrivalMs < patienceMs;
  }

  /** How many calls make up `aheadMs` of work; 1 where that is not known yet. */
  callsPerMessage(): number {
    if (this.#callMs === undefined) return 1;
    return Math.max(1, Math.min(aheadRunsMax, Math.floor(aheadMs / this.#callMs)));
  }

  /** Takes from the queue what goes to an instance together. */
  takeTogether(queue: TicketQueue, batchMax: number): Ticket[] {
    const joining = batchMax > 1;
    const most = joining ? batchMax : this.invokesOthers ? 1 : this.callsPerMessage();
    const tickets: Ticket[] = [];
    let size = 0;
    let bytes = 0;
    for (;;) {
      const next = queue.front;
      const nextSize = joining ? (next?.rows ?? 0) : 1;
      if (next === undefined || (tickets.length > 0 && size + nextSize > most)) return tickets;
      // One that has seen an instance die goes alone, so that it cannot take others along a second time.
      const [first] = tickets;
      if (first !== undefined && (goesAlone(next) || goesAlone(first))) return tickets;
      // What is joined shares a run of the model, which is worth a longer message.
      if (!joining && tickets.length > 0 && bytes + next.bytes > togetherBytesMax) return tickets;
      queue.take();
      size += nextSize;
      bytes += next.bytes;
      tickets.push(next);
    }
  }
}
