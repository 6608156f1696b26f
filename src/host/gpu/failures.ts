/**
 * Functions whose runs on GPUs fail one after the other for a reason of their own. They are left to the CPU pool, and tried again
 * with growing pauses: one run at a time, so that what costs an eviction and an error is not paid for by every invocation.
 */
import { GpuError, type GpuErrorCode } from '../../gpu/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { GpuRunner } from './shell-types.ts';

/** Runs that may fail in a row. */
export const failuresMax = 3;
const pauseMsMin = 2000;
const pauseMsMax = 300_000;

interface Failing {
  count: number;
  reason: string;
  /** The last one did not end, and took the GPU process with it. */
  isHung: boolean;
  /** Until when it is not tried (performance.now()). */
  untilMs: number;
  isTried: boolean;
}

/** Of these the function is innocent: the process, or whoever called. 'invalid' may be its input's fault, which the CPU pool tells. */
const othersFault: ReadonlySet<GpuErrorCode> = new Set([
  'died',
  'poisoned',
  'device-lost',
  'unavailable',
  'cancelled',
  'invalid',
]);

export class FailureBook {
  readonly #failing = new Map<string, Failing>();
  readonly #counted = new WeakSet<readonly Tensor[]>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Why the function is not to be tried now, in words; undefined where it may be. */
  whyNot(key: string): string | undefined {
    const failing = this.#failing.get(key);
    if (failing === undefined || failing.count < failuresMax) return undefined;
    const leftMs = failing.untilMs - this.#now();
    if (leftMs <= 0 && !failing.isTried) return undefined;
    const when = failing.isTried ? 'tried again now' : `tried again in ${Math.ceil(leftMs / 1000)} s`;
    if (failing.isHung) return `${failing.reason}; ${when}`;
    return `${failing.count} runs failed in a row, the last with: ${failing.reason}; ${when}`;
  }

  /** Functions that are left to the CPU pool, with the reason. */
  *paused(): IterableIterator<readonly [key: string, reason: string]> {
    for (const [key, { count, reason }] of this.#failing) if (count >= failuresMax) yield [key, reason];
  }

  /** An invocation of it goes to a GPU. Where it was paused it is alone until {@link ended}. */
  begin(key: string): void {
    const failing = this.#failing.get(key);
    if (failing !== undefined && failing.count >= failuresMax) failing.isTried = true;
  }

  /** That invocation is over, however: what its run was like is told by the other two. */
  ended(key: string): void {
    const failing = this.#failing.get(key);
    if (failing !== undefined) failing.isTried = false;
  }

  succeeded(key: string): void {
    this.#failing.delete(key);
  }

  failed(key: string, reason: string): void {
    const failing = this.#failing.get(key) ?? { count: 0, reason, isHung: false, untilMs: 0, isTried: false };
    failing.count++;
    failing.reason = reason;
    failing.isHung = false;
    const pauseMs = Math.min(pauseMsMax, pauseMsMin * 2 ** Math.max(0, failing.count - failuresMax));
    failing.untilMs = this.#now() + pauseMs;
    this.#failing.set(key, failing);
  }

  /** A run that did not end costs every function its place on the GPUs: one is enough for the longest pause. */
  hung(key: string, reason: string): void {
    const count = Math.max(failuresMax, (this.#failing.get(key)?.count ?? 0) + 1);
    this.#failing.set(key, { count, reason, isHung: true, untilMs: this.#now() + pauseMsMax, isTried: false });
  }

  /** Another model, or none. */
  forget(key: string): void {
    this.#failing.delete(key);
  }

  /** The same runner, its runs noted here. */
  watch(runner: GpuRunner): GpuRunner {
    return {
      run: async (key, inputs, options) => {
        try {
          const result = await runner.run(key, inputs, options);
          this.succeeded(key);
          return result;
        } catch (error) {
          // With more room made it may be run a second time: that is one failure.
          const isNew = !this.#counted.has(inputs);
          this.#counted.add(inputs);
          if (isNew && error instanceof GpuError && !othersFault.has(error.code)) this.failed(key, error.message);
          throw error;
        }
      },
      load: (key, options) => runner.load(key, options),
      trim: (key, gpu, layers) => runner.trim(key, gpu, layers),
      keep: (key, gpu, rung) => runner.keep(key, gpu, rung),
    };
  }
}
