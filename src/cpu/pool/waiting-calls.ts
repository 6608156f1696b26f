/**
 * The calls that a pool was handed and no instance has: while its first instance loads, a batch fills, or the process
 * that is next takes no more. Which call the CPU runs next is the scheduler's decision; here they stay in their order.
 */
import type { Ticket } from './ticket.ts';
import { CpuError } from '../types.ts';

export class WaitingCalls {
  readonly #tickets: Ticket[] = [];
  readonly #dropped: (ticket: Ticket, error: CpuError) => void;

  /** @param dropped called for each call that leaves because its client is gone or its deadline has passed */
  constructor(dropped: (ticket: Ticket, error: CpuError) => void) {
    this.#dropped = dropped;
  }

  get length(): number {
    return this.#tickets.length;
  }

  get first(): Ticket | undefined {
    return this.#tickets[0];
  }

  add(ticket: Ticket): void {
    this.#tickets.push(ticket);
  }

  /** Puts back a call that had been sent: before all others, since it has waited longest. */
  putBack(ticket: Ticket): void {
    this.#tickets.unshift(ticket);
  }

  /** Takes the first ones out. */
  take(count = this.#tickets.length): Ticket[] {
    return this.#tickets.splice(0, count);
  }

  /** Drops calls that nobody waits for any more, so that there are none among the first `count` that stay. */
  dropGone(nowMs: number, count = Infinity): void {
    for (let at = 0; at < Math.min(count, this.#tickets.length);) {
      const ticket = this.#tickets[at]!;
      const error = whyGone(ticket, nowMs);
      if (error === undefined) at++;
      else {
        this.#tickets.splice(at, 1);
        this.#dropped(ticket, error);
      }
    }
  }

  [Symbol.iterator](): IterableIterator<Ticket> {
    return this.#tickets[Symbol.iterator]();
  }
}

/** Why a call is not to be started any more; undefined if it is. */
export function whyGone({ signal, deadlineMs }: Ticket, nowMs: number): CpuError | undefined {
  if (signal?.aborted === true) return new CpuError('cancelled', 'the client is gone');
  if (deadlineMs > nowMs) return undefined;
  return new CpuError('deadline-passed', 'the deadline of this invocation passed before it could be started');
}
