/**
 * Tells when the next run of a GPU should be ordered: a moment before this one ends, so that the GPU does not idle while
 * the order is on its way. At most one run waits behind the one that executes, however wrong the expected times are.
 */
import type { StartKind } from '../types.ts';

/**
 * A notice to the host and its next order take some 0.7 ms on a server with an H200. Where they take longer, the GPU waits
 * for the rest.
 */
const leadMs = 1;
/** Shorter, a timer is of no use. */
const timerMsMin = 1;

/** Of a program's latest run, by its start: from the end of its submission, or of the run before it, to its end. */
export type LatestMs = { [Start in StartKind]?: number };

export class RunEnds {
  #latestEnd: Promise<unknown> = Promise.resolve();

  /**
   * Call it in order of submission. It tells nothing of a run that fails before it was expected to end.
   *
   * @param done when the submitted run has ended
   */
  async follow(done: Promise<unknown>, start: StartKind, latestMs: LatestMs, tell?: () => void): Promise<void> {
    const before = this.#latestEnd;
    this.#latestEnd = done.catch(() => undefined);
    await before;
    const beganMs = performance.now();
    let isTold = false;
    const tellOnce = (): void => {
      if (!isTold) tell?.();
      isTold = true;
    };
    // How much of a partial start is left depends on what was missing.
    const waitMs = start === 'partial' ? Infinity : (latestMs[start] ?? Infinity) - leadMs;
    if (waitMs < timerMsMin) tellOnce();
    const timer = isTold || waitMs === Infinity ? undefined : setTimeout(tellOnce, Math.floor(waitMs));
    try {
      await done;
      latestMs[start] = performance.now() - beganMs;
      tellOnce();
    } catch {
      // The run itself reports it.
    } finally {
      clearTimeout(timer);
    }
  }
}
