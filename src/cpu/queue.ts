/** The invocations that wait for an instance of one function: by priority, then in order of arrival. */
import type { CallHeader } from './protocol.ts';
import type { PoolInput, PoolResult } from './types.ts';
import type { Tensor } from '../tensor/index.ts';

/** One invocation from its acceptance to its answer. All instants are performance.now(). */
export interface Ticket {
  readonly call: CallHeader;
  readonly tensors: readonly Tensor[];
  readonly kind: PoolInput['kind'];
  /** Rows of the batch that it brings (a handler's request: 1, since only preprocess knows). */
  readonly rows: number;
  readonly arrivalMs: number;
  readonly deadlineMs: number;
  readonly priority: number;
  readonly resolve: (result: PoolResult) => void;
  readonly reject: (error: Error) => void;
  /** Undoes the abort listener. */
  release: (() => void) | undefined;
  /** Instances that died while holding it. */
  deaths: number;
  /** Whether it waited for a load, and for how long up to now. */
  cold: boolean;
  loadMs: number;
}

export class TicketQueue {
  readonly #tickets: Ticket[] = [];

  get length(): number {
    return this.#tickets.length;
  }

  get front(): Ticket | undefined {
    return this.#tickets[0];
  }

  add(ticket: Ticket): void {
    let at = this.#tickets.length;
    while (at > 0 && (this.#tickets[at - 1]?.priority ?? 0) > ticket.priority) at--;
    this.#tickets.splice(at, 0, ticket);
  }

  /** Puts one back that was on its way: before all others of its priority, since it has waited longest. */
  putBack(ticket: Ticket): void {
    const at = this.#tickets.findIndex((other) => other.priority >= ticket.priority);
    this.#tickets.splice(at === -1 ? this.#tickets.length : at, 0, ticket);
  }

  take(): Ticket | undefined {
    return this.#tickets.shift();
  }

  remove(ticket: Ticket): boolean {
    const at = this.#tickets.indexOf(ticket);
    if (at === -1) return false;
    this.#tickets.splice(at, 1);
    return true;
  }

  /** Takes those whose deadline has passed. */
  takeExpired(nowMs: number): Ticket[] {
    const expired: Ticket[] = [];
    for (let at = this.#tickets.length - 1; at >= 0; at--) {
      const ticket = this.#tickets[at];
      if (ticket !== undefined && ticket.deadlineMs <= nowMs) {
        expired.push(ticket);
        this.#tickets.splice(at, 1);
      }
    }
    return expired.reverse();
  }

  takeAll(): Ticket[] {
    return this.#tickets.splice(0);
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

  [Symbol.iterator](): IterableIterator<Ticket> {
    return this.#tickets[Symbol.iterator]();
  }
}
