/**
 * Functions that are to be on a GPU though each of their calls would be refused: a start that finds nothing there takes
 * longer than the SLO allows, even on an idle link, or on links that are hardly ever idle. Only a call that is let in has
 * anything loaded. So one late call of such a function is let through, if that gains more than what its load evicts was
 * worth; the load takes what idle links and the order of eviction leave to late calls. The next ones find the function
 * there.
 */
import { getOrMake } from '../tools/index.ts';
import type { ServedFunction } from './function.ts';
import type { Gpu } from './gpu.ts';
import { wholeBytes, type GpuOffer } from './offer.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { pauseMax, refusedMax } = tuning.bringing;

/** What came of a function's calls since a load of it has ended. */
interface Tried {
  /** Calls that were refused though they would have been in time on an idle link. */
  refused: number;
  /** When the next one is let through. */
  nextMs: number;
  /** Twice as long each time; 0: none was let through. */
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
    const found = this.#state.slots.at(fn, gpu);
    const offer = gpu.variantOf(fn, found);
    const leastColdMs = fn.leastColdMs + (this.#state.host?.missingMs(fn, nowMs) ?? 0);
    // Where even a run that finds its function there is late nothing would be gained.
    if (laneFreeMs(gpu, nowMs) + offer.warmMs > deadlineMs) return false;
    for (let slot = this.#state.slots.first(fn); slot !== undefined; slot = slot.next) {
      const isUnderWay = slot.load !== undefined || (slot.entry !== undefined && !slot.isWhole);
      // It is there and has too much to do, or another call has it brought.
      if (isUnderWay || (slot.gpu === gpu && slot.isResident)) return false;
    }
    if (!this.#isWorth(fn, gpu, offer, found?.low ?? 0, deadlineMs - nowMs)) return false;
    const tried = getOrMake(this.#tried, fn, () => ({ refused: 0, nextMs: -Infinity, pauseMs: 0 }));
    // The next call may find an idle link, and have the function loaded in time.
    if (nowMs + leastColdMs <= deadlineMs && ++tried.refused <= refusedMax) return false;
    if (nowMs < tried.nextMs) return false;
    tried.pauseMs = Math.min(Math.max(2 * tried.pauseMs, leastColdMs), pauseMax * leastColdMs);
    tried.nextMs = nowMs + tried.pauseMs;
    return true;
  }

  /**
   * Whether its next call gains more by finding the function there than others lose by what is evicted for it. A call
   * that is refused waits for nothing, so it gains no more than its SLO.
   */
  #isWorth(fn: ServedFunction, { memory }: Gpu, offer: GpuOffer, low: number, sloMs: number): boolean {
    const { popularity, pressure } = this.#state;
    const gainMs = Math.min(1, popularity.share(fn.number)) * pressure.lateMs(offer, low, sloMs);
    return gainMs >= memory.lossMs(wholeBytes(offer) - offer.prefixBytes[low]!);
  }

  /** A load of the function has ended, so letting a call through is not in vain; or it was removed. */
  forget(fn: ServedFunction): void {
    this.#tried.delete(fn);
  }
}

/** When the lane will have done what can run on it now. */
const laneFreeMs = ({ running, laneEndMs, line }: Gpu, nowMs: number): number =>
  (running === undefined ? nowMs : Math.max(nowMs, laneEndMs)) + line.runnableMs;
