/** The invocations that wait for an instance of one function: by priority, then in order of arrival. */
import { CallerWatch } from '../../tools/index.ts';
import type { Ticket } from './ticket.ts';
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
