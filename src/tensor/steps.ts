/**
 * Long work on one thread in steps, so that requests in between are served: a generator that yields wherever it may be
 * interrupted, after some tens of kilobytes.
 */
export type Steps<Result> = Generator<void, Result, void>;

/** Longest that one turn of the event loop belongs to such work, however much of it there is. */
const sliceMs = 8;
/** What is done within this is done at once. */
const atOnceMs = 1;

/** All steps at once. */
export function runSteps<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/**
 * The result at once where the steps take about a millisecond, else a promise of it: the event loop turns between the
 * slices, and all long work takes turns. What the steps throw is thrown, or rejected with.
 */
export function runInSlices<Result>(steps: Steps<Result>): Result | Promise<Result> {
  // Most are done in one step, and need no clock.
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

/** Work that takes turns; each gives whether it is done. */
const waiting: (() => boolean)[] = [];

/** One slice of one work: callbacks of setImmediate that were all due would run in one turn of the event loop. */
function turn(): void {
  const work = waiting[0];
  if (work === undefined) return;
  const isDone = work();
  waiting.shift();
  if (!isDone) waiting.push(work);
  if (waiting.length > 0) setImmediate(turn);
}
