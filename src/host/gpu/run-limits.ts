/**
 * Time limits for runs. A kernel, or an operator in the middle of its work, can only be stopped by ending the GPU
 * process; so the process is ended when a run exceeds its function's limit.
 */
import { getOrMake, timerMsMax } from '../../tools/index.ts';
import type { GpuRunner } from '../../live/index.ts';

export interface RunLimitsOptions {
  /** Limit for a run of the function with everything before it; undefined: none. */
  readonly limitMs: (key: string) => number | undefined;
  /** Ends the process; everything under way there is rejected. */
  readonly onOver: (key: string, limitMs: number) => void;
}

interface Run {
  readonly key: string;
  timer: NodeJS.Timeout | undefined;
}

/** Makes a runner into the same runner with limited runs. */
export function runLimits({ limitMs: limitOf, onOver }: RunLimitsOptions): (runner: GpuRunner) => GpuRunner {
  /** By GPU, in order of submission: a GPU runs one after the other, and only the first one's time counts. */
  const inHand = new Map<number, Run[]>();
  const count = (runs: readonly Run[]): void => {
    const [first] = runs;
    if (first === undefined || first.timer !== undefined) return;
    const limitMs = limitOf(first.key);
    if (limitMs === undefined || limitMs > timerMsMax) return;
    first.timer = setTimeout(() => {
      // The answer may have arrived while this process was busy: it is read first.
      setImmediate(() => {
        if (runs[0] === first) onOver(first.key, limitMs);
      });
    }, limitMs);
    first.timer.unref();
  };
  return (runner) => ({
    run: async (key, inputs, options) => {
      const run: Run = { key, timer: undefined };
      const runs = getOrMake(inHand, options.gpu, () => []);
      runs.push(run);
      count(runs);
      try {
        return await runner.run(key, inputs, options);
      } finally {
        clearTimeout(run.timer);
        runs.splice(runs.indexOf(run), 1);
        count(runs);
      }
    },
    load: (key, options) => runner.load(key, options),
    trim: (key, gpu, layers) => runner.trim(key, gpu, layers),
    release: (key, gpu, layers) => runner.release(key, gpu, layers),
    keep: (key, gpu, layers) => runner.keep(key, gpu, layers),
  });
}
