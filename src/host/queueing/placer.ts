/**
 * Where an invocation runs:
 *   1. here, while this machine's pool would answer sooner than any worker promises;
 *   2. at the worker that promises the earliest answer, where that is sooner by {@link worthwhile};
 *   3. here after all, where the queue could not do it (Redis or the worker is gone, the input is too large);
 *   4. at a worker, where the pool's own queue is full.
 */
import { CpuError, type CpuPools, type InvokeOptions, type PoolInput, type PoolResult } from '../../cpu/index.ts';
import { QueueError, type OverflowOffer } from '../../queue/index.ts';
import type { FunctionVersion } from '../types.ts';
import { LocalEstimate } from './local-estimate.ts';
import type { Queueing } from './queueing.ts';

/** Both times are predictions; a promise that is hardly better is not worth the way. */
const worthwhile = 0.8;

export interface Placed {
  readonly result: PoolResult;
  /** Where a worker ran it: its name, and why it was not run here. */
  readonly remote: { readonly worker: string; readonly reason: string } | undefined;
}

export interface PlacerOptions {
  readonly pools: CpuPools;
  readonly queueing: Queueing | undefined;
  /** Instances of a version that this machine can run at the same time. */
  readonly slotsOf: (version: FunctionVersion) => number;
  /** In place of the pool's length, a prediction of its next answer, in milliseconds; undefined where there is none yet. */
  readonly predictLocalMs?: (version: FunctionVersion) => number | undefined;
}

export class Placer {
  readonly #options: PlacerOptions;
  readonly #estimate = new LocalEstimate();
  /** Invocations that were run here after a worker or Redis had failed them. */
  cameBack = 0;

  constructor(options: PlacerOptions) {
    this.#options = options;
  }

  /** @throws CpuError */
  async run(version: FunctionVersion, input: PoolInput, options: InvokeOptions): Promise<Placed> {
    const { queueing } = this.#options;
    if (queueing?.remote === true && this.#estimate.busy(version.key)) {
      const offer = queueing.overflow.offer(version.key);
      const localMs = offer === undefined ? 0 : this.#localMs(version);
      if (offer !== undefined && offer.predictedMs < worthwhile * localMs) {
        const placed = await this.#elsewhere(version, input, options, `cpu pool would finish in ${words(localMs)}`);
        if (placed !== undefined) return placed;
      }
    }
    try {
      return { result: await this.#here(version, input, options), remote: undefined };
    } catch (error) {
      const full = error instanceof CpuError && error.code === 'queue-full';
      if (!full || this.#offer(version) === undefined) throw error;
      const placed = await this.#elsewhere(version, input, options, "cpu pool's queue is full");
      if (placed !== undefined) return placed;
      throw error;
    }
  }

  forget(version: FunctionVersion): void {
    this.#estimate.forget(version.key);
  }

  #offer({ key }: FunctionVersion): OverflowOffer | undefined {
    const { queueing } = this.#options;
    return queueing?.remote === true ? queueing.overflow.offer(key) : undefined;
  }

  #localMs(version: FunctionVersion): number {
    const { predictLocalMs, slotsOf } = this.#options;
    return predictLocalMs?.(version) ?? this.#estimate.predictedMs(version.key, slotsOf(version));
  }

  async #here({ key }: FunctionVersion, input: PoolInput, options: InvokeOptions): Promise<PoolResult> {
    const end = this.#estimate.begin(key);
    try {
      const result = await this.#options.pools.invoke(key, input, options);
      const { preprocessMs, inferMs, postprocessMs } = result.timings;
      this.#estimate.ran(key, preprocessMs + inferMs / result.batchSize + postprocessMs);
      return result;
    } finally {
      end();
    }
  }

  /** Undefined where the queue could not do it. */
  async #elsewhere(
    { key }: FunctionVersion,
    input: PoolInput,
    options: InvokeOptions,
    reason: string,
  ): Promise<Placed | undefined> {
    try {
      const answer = await this.#options.queueing?.overflow.submit(key, input, options);
      return answer && { result: answer.result, remote: { worker: answer.worker, reason } };
    } catch (error) {
      if (!(error instanceof QueueError)) throw error;
      this.cameBack++;
      return undefined;
    }
  }
}

function words(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}
