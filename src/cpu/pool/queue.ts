/**
 * The invocations that wait for an instance of one function, by priority, then in order of arrival; and which of them an
 * on-demand instance gets together.
 */
import { CallerWatch } from '../../tools/index.ts';
import { goesAlone, type Ticket } from './ticket.ts';
import { CpuError } from '../types.ts';

/** The longest delay of Node's timers. */
const timerMsMax = 2 ** 31 - 1;

/** Shared by all queues: a connection outlives the pools that it calls, and must not keep them in memory. */
const clients = new CallerWatch<Ticket>((ticket) => ticket.waitsIn?.leave(ticket));

export class TicketQueue {
  readonly #tickets: Ticket[] = [];
  /** Called for each ticket that leaves because its client is gone or its deadline has passed. */
  readonly #dropped: (ticket: Ticket, error: CpuError) => void;
  #expiryTimer: NodeJS.Timeout | undefined;
  #expiryAtMs = Infinity;

  constructor(dropped: (ticket: Ticket, error: CpuError) => void) {
    this.#dropped = dropped;
  }

  get length(): number {
    return this.#tickets.length;
  }

  get front(): Ticket | undefined {
    return this.#tickets[0];
  }

  add(ticket: Ticket): void {
    let at = this.#tickets.length;
    while (at > 0 && (this.#tickets[at - 1]?.priority ?? 0) > ticket.priority) at--;
    this.#insert(ticket, at);
  }

  /** Puts back a ticket that had been sent: before all others of its priority, since it has waited longest. */
  putBack(ticket: Ticket): void {
    const at = this.#tickets.findIndex((other) => other.priority >= ticket.priority);
    this.#insert(ticket, at === -1 ? this.#tickets.length : at);
  }

  take(): Ticket | undefined {
    const ticket = this.#tickets.shift();
    if (ticket !== undefined) this.#forgetClient(ticket);
    return ticket;
  }

  /** Its client has gone. */
  leave(ticket: Ticket): void {
    this.#drop(ticket, clientGone());
  }

  takeAll(): Ticket[] {
    const tickets = this.#tickets.splice(0);
    for (const ticket of tickets) this.#forgetClient(ticket);
    clearTimeout(this.#expiryTimer);
    this.#expiryAtMs = Infinity;
    return tickets;
  }

  /** Rows that wait, counted only up to `limit`. */
  rowsUpTo(limit: number): number {
    let rows = 0;
    for (const ticket of this.#tickets) {
      rows += ticket.rows;
      if (rows >= limit) return limit;
    }
    return rows;
  }

  /** When the longest-waiting ticket arrived; Infinity for an empty queue. */
  earliestArrivalMs(): number {
    let earliestMs = Infinity;
    for (const { arrivalMs } of this.#tickets) earliestMs = Math.min(earliestMs, arrivalMs);
    return earliestMs;
  }

  [Symbol.iterator](): IterableIterator<Ticket> {
    return this.#tickets[Symbol.iterator]();
  }

  #insert(ticket: Ticket, at: number): void {
    if (ticket.signal?.aborted) {
      this.#dropped(ticket, clientGone());
      return;
    }
    this.#tickets.splice(at, 0, ticket);
    ticket.waitsIn = this;
    if (ticket.signal !== undefined) clients.add(ticket.signal, ticket);
    this.#armExpiry(ticket.deadlineMs);
  }

  #drop(ticket: Ticket, error: CpuError): void {
    const at = this.#tickets.indexOf(ticket);
    if (at === -1) return;
    this.#tickets.splice(at, 1);
    this.#forgetClient(ticket);
    this.#dropped(ticket, error);
  }

  #forgetClient(ticket: Ticket): void {
    ticket.waitsIn = undefined;
    if (ticket.signal !== undefined) clients.delete(ticket.signal, ticket);
  }

  /** One timer serves the whole queue: it is set for the earliest deadline. */
  #armExpiry(deadlineMs: number): void {
    if (deadlineMs >= this.#expiryAtMs) return;
    clearTimeout(this.#expiryTimer);
    this.#expiryAtMs = deadlineMs;
    const waitMs = Math.max(0, Math.ceil(deadlineMs - performance.now()));
    this.#expiryTimer = setTimeout(() => this.#expire(), Math.min(waitMs, timerMsMax));
  }

  #expire(): void {
    this.#expiryAtMs = Infinity;
    const nowMs = performance.now();
    const expired = this.#tickets.filter((ticket) => ticket.deadlineMs <= nowMs);
    for (const ticket of expired) this.#drop(ticket, deadlinePassed());
    let nextMs = Infinity;
    for (const { deadlineMs } of this.#tickets) nextMs = Math.min(nextMs, deadlineMs);
    this.#armExpiry(nextMs);
  }
}

export function queueFull(key: string, queueMax: number): CpuError {
  return new CpuError('queue-full', `${queueMax} invocations of ${key} are waiting already, which is its limit`);
}

export function clientGone(): CpuError {
  return new CpuError('cancelled', 'the client is gone');
}

export function deadlinePassed(): CpuError {
  return new CpuError('deadline-passed', 'the deadline of this invocation passed before it could be started');
}

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
/** A socket read takes 64 KiB; a smaller message is not split and reassembled. */
const togetherBytesMax = 56 * 1024;
/** Weight of a longer measurement in the expected time of a call; a shorter one counts at once. */
const slowerWeight = 0.05;
const steadyMessages = 8;

/**
 * Which calls go to an on-demand instance as one message, and when another instance is worth waking. Calls are sent by
 * priority, then arrival,
 *   1. to a busy instance ahead of time, while all waiting calls are less than `nextInstanceMs` of work: the instance
 *      then finds its next work queued, and waking another would cost more than it brings;
 *   2. else to an idle instance, when the cores allow another run;
 *   3. else, if runs are short, to a busy one after all.
 * One message holds up to `batchMax` rows to be joined into one run of the model. For a function that does not batch,
 * it holds as many runs as make up `aheadMs` of work: for a run of some microseconds the way to the instance and back
 * costs more than the run, and sharing it doubles the throughput.
 */
export class BatchRule {
  /**
   * Time of one call on an instance with a core for itself; undefined before the first. On a busy machine most
   * measurements include waiting for a core, so the short ones are believed.
   */
  #callMs: number | undefined;
  #messages = 0;
  /** Its handler has invoked other functions: a call that waits for them would delay the rest of its message. */
  invokesOthers = false;

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
  littleWaits({ front, length }: TicketQueue, nowMs: number): boolean {
    if (this.#callMs === undefined || front === undefined) return false;
    return length * this.#callMs <= nextInstanceMs && nowMs - front.arrivalMs < patienceMs;
  }

  /** How many calls make up `aheadMs` of work; 1 while that is unknown. */
  callsPerMessage(): number {
    if (this.#callMs === undefined) return 1;
    return Math.max(1, Math.min(aheadRunsMax, Math.floor(aheadMs / this.#callMs)));
  }

  /** Takes the calls for one message from the queue. */
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
      // A call that has seen an instance die goes alone, so that it cannot fail others a second time.
      const [first] = tickets;
      if (first !== undefined && (goesAlone(next) || goesAlone(first))) return tickets;
      // Joined calls share a run of the model, which is worth a longer message.
      if (!joining && tickets.length > 0 && bytes + next.bytes > togetherBytesMax) return tickets;
      queue.take();
      size += nextSize;
      bytes += next.bytes;
      tickets.push(next);
    }
  }
}
