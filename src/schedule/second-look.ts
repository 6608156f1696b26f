/**
 * Which calls that wait for a GPU are weighed against the CPU and the workers once more, and when: at the last instant
 * at which such a place still meets the SLO. The prediction at arrival may be wrong by then, because later calls took
 * the links.
 */
import { IndexedHeap } from './heap.ts';
import type { OfferSheet } from './offer.ts';
import type { Sides } from './sides.ts';
import { nobody, type SchedulerState } from './state.ts';
import { noPlace } from './types.ts';

export class SecondLook {
  readonly #state: SchedulerState;
  readonly #sides: Sides;
  /** Invocations by that instant. One that has left its line meanwhile is no longer waiting when its instant comes. */
  readonly #due = new IndexedHeap();
  /** The next wake that was asked for; Infinity: none. */
  #wakeMs = Infinity;

  constructor(schedulerState: SchedulerState, sides: Sides) {
    this.#state = schedulerState;
    this.#sides = sides;
  }

  grow(count: number): void {
    this.#due.grow(count);
  }

  /** An invocation has begun to wait for a GPU. @param except a place that refused it */
  plan(invocation: number, sheet: OfferSheet, nowMs: number, except: number): void {
    this.#due.remove(invocation);
    if (this.#state.policy.offload === 'never' || !this.#state.mayGoAside(invocation, sheet)) return;
    const functionIndex = this.#state.functionOf[invocation]!;
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const side = this.#sides.best(functionIndex, sheet, nowMs, deadlineMs, except);
    if (side === noPlace || deadlineMs === Infinity) return;
    const dueMs = this.#sides.latestStartMs(side, functionIndex, sheet, nowMs, deadlineMs);
    if (dueMs <= nowMs) return;
    this.#due.add(invocation, dueMs);
    this.#askBy(dueMs, nowMs);
  }

  /** Takes out one that is due; -1 when none is, after asking for a wake for the next. */
  next(nowMs: number): number {
    const first = this.#due.first();
    if (first === nobody) return nobody;
    const dueMs = this.#due.keyOf(first);
    if (dueMs > nowMs) {
      this.#askBy(dueMs, nowMs);
      return nobody;
    }
    this.#due.remove(first);
    return first;
  }

  #askBy(dueMs: number, nowMs: number): void {
    if (this.#wakeMs > nowMs && this.#wakeMs <= dueMs) return;
    this.#wakeMs = dueMs;
    this.#state.shell.wake(dueMs);
  }
}
