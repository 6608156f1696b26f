/**
 * Which calls that wait for a GPU are weighed against the places beside the GPUs once more, and when: at the last
 * instant at which such a place still meets the SLO. The prediction at arrival may be wrong by then, because later calls
 * took the links.
 */
import { Heap } from './heap.ts';
import type { Invocation } from './invocation.ts';
import type { Side } from './side.ts';
import type { SchedulerState } from './state.ts';

export class SecondLook {
  readonly #state: SchedulerState;
  /** Invocations by that instant. One that has left its line meanwhile is no longer waiting when its instant comes. */
  readonly #due = new Heap<Invocation>();
  /** The next wake that was asked for; Infinity: none. */
  #wakeMs = Infinity;

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** An invocation has begun to wait for a GPU. @param side the best place beside the GPUs for it, if there is one */
  plan(invocation: Invocation, side: Side | undefined, nowMs: number): void {
    this.#due.remove(invocation);
    const { fn, deadlineMs } = invocation;
    if (side === undefined || deadlineMs === Infinity) return;
    const dueMs = side.latestStartMs(fn, deadlineMs, nowMs);
    if (dueMs <= nowMs) return;
    this.#due.add(invocation, dueMs);
    this.#askBy(dueMs, nowMs);
  }

  /** Takes out one that is due; where none is, asks for a wake for the next. */
  next(nowMs: number): Invocation | undefined {
    const first = this.#due.first();
    if (first === undefined) return undefined;
    const dueMs = this.#due.keyOf(first);
    if (dueMs > nowMs) {
      this.#askBy(dueMs, nowMs);
      return undefined;
    }
    this.#due.remove(first);
    return first;
  }

  #askBy(dueMs: number, nowMs: number): void {
    if (this.#wakeMs > nowMs && this.#wakeMs <= dueMs) return;
    this.#wakeMs = dueMs;
    this.#state.orders.wake(dueMs);
  }
}
