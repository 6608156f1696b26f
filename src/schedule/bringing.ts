/**
 * Functions that are to be on a GPU though each of their calls would be refused: a start that finds nothing there takes
 * longer than the SLO allows, and only a call that is let in has anything loaded. So one late call of such a function is
 * let through; its load takes what idle links and the order of eviction leave to late calls. The next ones find the
 * function there.
 */
import type { ServedFunction } from './function.ts';
import type { Gpu } from './gpu.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { pauseMax } = tuning.bringing;

/** A call was let through, and no load of its function has ended since. */
interface Tried {
  /** When the next one is let through. */
  nextMs: number;
  /** Twice as long each time. */
  pauseMs: number;
}

export class Bringing {
  readonly #state: SchedulerState;
  readonly #tried = new Map<ServedFunction, Tried>();

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** Whether a call that would be late on this GPU, the best for it, is let through. */
  mayPass(fn: ServedFunction, gpu: Gpu, deadlineMs: number, nowMs: number): boolean {
    const { warmMs } = gpu.variantOf(fn, this.#state.slots.at(fn, gpu));
    const leastColdMs = fn.leastColdMs + (this.#state.host?.missingMs(fn, nowMs) ?? 0);
    // Where even a warm run is late nothing would be gained; where a start could be in time, its calls are let in.
    if (nowMs + warmMs > deadlineMs || nowMs + leastColdMs <= deadlineMs) return false;
    for (let slot = this.#state.slots.first(fn); slot !== undefined; slot = slot.next) {
      const isUnderWay = slot.load !== undefined || (slot.entry !== undefined && !slot.isWhole);
      // It is there and has too much to do, or another call has it brought.
      if (isUnderWay || (slot.gpu === gpu && slot.isResident)) return false;
    }
    const tried = this.#tried.get(fn);
    if (tried !== undefined && nowMs < tried.nextMs) return false;
    const pauseMs = tried === undefined ? leastColdMs : Math.min(2 * tried.pauseMs, pauseMax * leastColdMs);
    this.#tried.set(fn, { nextMs: nowMs + pauseMs, pauseMs });
    return true;
  }

  /** A load of the function has ended, so letting a call through is not in vain. */
  loaded(fn: ServedFunction): void {
    this.#tried.delete(fn);
  }

  /** The function was removed. */
  forget(fn: ServedFunction): void {
    this.#tried.delete(fn);
  }
}
