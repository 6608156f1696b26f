/**
 * Functions that are to be on a GPU though each of their calls would be refused: a start that finds nothing there takes
 * longer than the SLO allows, and only a call that is let in has anything loaded. So one late call of such a function is
 * let through; its load takes what idle links and the order of eviction leave to late calls. The next ones find the
 * function there.
 */
import type { SchedulerState } from './state.ts';

interface Tried {
  /** On so many GPUs it was whole when a call was let through. */
  copies: number;
  /** When the next one is, if it is on no more of them by then. */
  nextMs: number;
  /** Twice as long after each call that brought nothing. */
  pauseMs: number;
}

export class Bringing {
  readonly #state: SchedulerState;
  readonly #tried = new Map<number, Tried>();

  constructor(schedulerState: SchedulerState) {
    this.#state = schedulerState;
  }

  /** Whether a call that would be late on this GPU, the best for it, is let through. */
  mayPass(functionIndex: number, gpu: number, deadlineMs: number, nowMs: number): boolean {
    const { slots, host } = this.#state;
    const { warmMs } = this.#state.offerAt(functionIndex, gpu);
    const leastColdMs = this.#state.leastColdMs(functionIndex) + (host?.missingMs(functionIndex, nowMs) ?? 0);
    // Where even a warm run is late nothing would be gained; where a start could be in time, its calls are let in.
    if (nowMs + warmMs > deadlineMs || nowMs + leastColdMs <= deadlineMs) return false;
    for (let slot = slots.first(functionIndex); slot !== undefined; slot = slot.next) {
      const isUnderWay = slot.load !== undefined || (slot.entry >= 0 && !slot.isWhole);
      // It is there and has too much to do, or another call has it brought.
      if (isUnderWay || (slot.gpu === gpu && this.#state.isResident(slot))) return false;
    }
    const tried = this.#tried.get(functionIndex);
    const copies = slots.copies(functionIndex);
    const isInVain = tried !== undefined && copies <= tried.copies;
    if (isInVain && nowMs < tried.nextMs) return false;
    const pauseMs = isInVain ? 2 * tried.pauseMs : leastColdMs;
    this.#tried.set(functionIndex, { copies, nextMs: nowMs + pauseMs, pauseMs });
    return true;
  }

  forget(functionIndex: number): void {
    this.#tried.delete(functionIndex);
  }
}
