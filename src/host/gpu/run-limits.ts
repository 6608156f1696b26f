/**
 * Runs that do not end. Nothing stops a kernel, or an operator in the middle of its work, but the end of the GPU
 * process; so that is ended when a run takes longer than its function may.
 */
import type { GpuRunner } from '../live/index.ts';

export interface RunLimitsOptions {
  /** What a run of the function may take with all that comes before it; undefined where it has no limit. */
  readonly limitMs: (key: string) => number | undefined;
  /** Ends the process; everything in hand there is rejected. */
  readonly onOver: (key: string, limitMs: number) => void;
}

/** The longest that a timer takes, 25 days. */
const timerMsMax = 2 ** 31 - 1;

interface Run {
  readonly key: string;
  timer: NodeJS.Timeout | undefined;
}

export class RunLimits {
  readonly #options: RunLimitsOptions;
  /**
   * By GPU, in the order in which they were given: a GPU runs one after the other, and only the first one's time
   * counts.
   */
  readonly #inHand = new Map<number, Run[]>();

  constructor(options: RunLimitsOptions) {
    this.#options = options;
  }

  /** The same runner, its runs limited. */
  watch(runner: GpuRunner): GpuRunner {
    return {
      run: async (key, inputs, options) => {
        const run: Run = { key, timer: undefined };
        const runs = this.#inHand.get(options.gpu) ?? [];
        this.#inHand.set(options.gpu, runs);
        runs.push(run);
        this.#count(runs);
        try {
          return await runner.run(key, inputs, options);
        } finally {
          clearTimeout(run.timer);
          runs.splice(runs.indexOf(run), 1);
          this.#count(runs);
        }
      },
      load: (key, options) => runner.load(key, options),
      trim: (key, gpu, layers) => runner.trim(key, gpu, layers),
      keep: (key, gpu, rung) => runner.keep(key, gpu, rung),
    };
  }

  #count(runs: readonly Run[]): void {
    const [first] = runs;
    if (first === undefined || first.timer !== undefined) return;
    const limitMs = this.#options.limitMs(first.key);
    if (limitMs === undefined || limitMs > timerMsMax) return;
    first.timer = setTimeout(() => {
      // An answer may have come while this process was busy with something else: it is read before that.
      setImmediate(() => {
        if (runs[0] === first) this.#options.onOver(first.key, limitMs);
      });
    }, limitMs);
    first.timer.unref();
  }
}
