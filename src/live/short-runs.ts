/**
 * When the next run of a GPU is ordered where runs are short. Of a longer one the GPU process says a moment before its end
 * that the next may come (src/gpu/engine/run-ends.ts). Of one that takes less than that moment it would say so at once, and
 * each run would wait for the message about the one before. So as many as make up the moment are ordered without being asked
 * for, and their answers say when more may come.
 */

/** The moment, in milliseconds of the GPU's own time: so much may wait there behind what it executes. */
const aheadMs = 1;
/** Expected times may be wrong, and the GPU process takes its own for each run: so many are under way at most. */
const aheadRunsMax = 8;
/** A function has programs for few shapes; those whose runs were timed longest ago make room. */
const sizesMax = 64;

/** The GPU's own time of a function's latest warm runs, by the bytes of their inputs: other shapes run other programs. */
export class WarmTimes {
  readonly #ms = new Map<number, number>();

  /** How long a run takes that is expected to end within the moment; undefined: it takes longer, or is not known. */
  shortMs(inputBytes: number): number | undefined {
    const ms = this.#ms.get(inputBytes);
    return ms !== undefined && ms <= aheadMs ? ms : undefined;
  }

  ran(inputBytes: number, gpuMs: number): void {
    if (this.#ms.size >= sizesMax && !this.#ms.has(inputBytes)) this.#ms.delete(this.#ms.keys().next().value!);
    this.#ms.set(inputBytes, gpuMs);
  }
}

interface ShortRun {
  readonly expectedMs: number;
  readonly free: () => void;
  isFree: boolean;
}

/** The short runs of one GPU that have not been answered. */
export class ShortRuns {
  readonly #runs = new Set<ShortRun>();

  /**
   * One was ordered. Calls `free` when the next run may be ordered, now or at an answer. Returns what is to be called when
   * it has ended, however it did.
   */
  ordered(expectedMs: number, free: () => void): () => void {
    const run: ShortRun = { expectedMs, free, isFree: false };
    this.#runs.add(run);
    this.#look();
    return () => {
      this.#runs.delete(run);
      this.#look();
    };
  }

  #look(): void {
    let sumMs = 0;
    for (const { expectedMs } of this.#runs) sumMs += expectedMs;
    if (sumMs > aheadMs || this.#runs.size >= aheadRunsMax) return;
    for (const run of this.#runs) {
      if (run.isFree) continue;
      run.isFree = true;
      // It may order the next run, and so look by itself.
      run.free();
      return;
    }
  }
}
