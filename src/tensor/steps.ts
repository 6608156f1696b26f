import { coreWaitMs } from '../tools/index.ts';

/**
 * Long work on one thread in steps, so that other requests are served in between. A generator yields at each point
 * where it may be interrupted, after some tens of kilobytes.
 */
export type Steps<Result> = Generator<void, Result, void>;

/** Longest time in one turn of the event loop for all such work. */
const sliceMs = 8;
/** Work shorter than this is done at once. */
const atOnceMs = 1;

/** Runs all steps at once. */
export function runSteps<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/**
 * The result at once if the steps take about a millisecond, else a promise: the work goes on in slices, between which
 * the event loop turns, and all long work takes turns. Errors of the steps are thrown, or reject the promise.
 */
export function runInSlices<Result>(steps: Steps<Result>): Result | Promise<Result> {
  // Most work is one step, and needs no clock.
  for (let untilMs = 0; ;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    const nowMs = performance.now();
    if (untilMs === 0) untilMs = nowMs + atOnceMs;
    else if (nowMs > untilMs) break;
  }
  return new Promise((resolve, reject) => {
    waiting.push(() => {
      const sliceEndMs = performance.now() + sliceMs;
      try {
        do {
          const step = steps.next();
          if (step.done === true) {
            resolve(step.value);
            return true;
          }
        } while (performance.now() < sliceEndMs);
        return false;
      } catch (error) {
        reject(error);
        return true;
      }
    });
    if (waiting.length === 1) setImmediate(turn);
  });
}

let workedMs = 0;
/**
 * Milliseconds that long work has taken so far, without the time for which other programs had the core: what one piece
 * of it waited for others' is among it.
 */
export const longWorkMs = (): number => workedMs;

/** Long work that takes turns; each entry runs a slice and returns whether the work is done. */
const waiting: (() => boolean)[] = [];

/** Runs one slice of one work: several setImmediate callbacks that are due run in one turn of the event loop. */
function turn(): void {
  const work = waiting[0];
  if (work === undefined) return;
  const [startMs, waitedMs] = [performance.now(), coreWaitMs()];
  const isDone = work();
  workedMs += performance.now() - startMs - (coreWaitMs() - waitedMs);
  waiting.shift();
  if (!isDone) waiting.push(work);
  if (waiting.length > 0) setImmediate(turn);
}
