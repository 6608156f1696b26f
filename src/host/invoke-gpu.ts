/** One invocation on the GPUs: with its tensors as they came, or between the two halves of its handler. */
import { CpuError, type CpuPools, type InvokeOptions, type PoolInput, type PoolResult } from '../cpu/index.ts';
import type { GpuError } from '../gpu/index.ts';
import type { Tensor } from '../tensor/index.ts';
import { HostError } from './errors.ts';
import type { GpuOutcome, GpuWish } from './gpu/index.ts';
import type { Placement } from './invoke.ts';
import type { Statistics } from './statistics.ts';
import type { FunctionVersion } from './types.ts';

/** What the GPUs are to an invocation. */
export interface InvocationGpus {
  /** Why an invocation of this version cannot be shown to the scheduler now; undefined where it can. */
  whyNot(key: string): string | undefined;
  /** @throws GpuError */
  invoke(
    version: FunctionVersion,
    inputs: readonly Tensor[],
    signal?: AbortSignal,
    wish?: GpuWish,
  ): Promise<GpuOutcome>;
  /** Resolves to false where no GPU can have it now. */
  load(version: FunctionVersion): Promise<boolean>;
  unload(version: FunctionVersion): Promise<void>;
  readonly pid: number;
}

/** A result, or the reason why the CPU pool is to run it; `done` is called when that has ended, and told whether with an answer. */
export type GpuAttempt =
  | { readonly kind: 'ran'; readonly result: PoolResult; readonly placement: Placement }
  | { readonly kind: 'offload'; readonly reason: string; readonly done: (isAnswered: boolean) => void };

type Shown = Exclude<GpuOutcome, { readonly kind: 'shed' }>;
type RanOnGpu = Extract<GpuOutcome, { readonly kind: 'ran' }>;

/** How long an invocation can wait, and whom it lets go first. */
export interface Patience {
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal | undefined;
  readonly deadlineMs: number | undefined;
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** Where it is not the function's. */
  readonly sloMs?: number | undefined;
  readonly priority?: number | undefined;
}

export class GpuInvoker {
  readonly #gpus: InvocationGpus;
  readonly #pools: CpuPools;
  readonly #statistics: Statistics;

  constructor(gpus: InvocationGpus, pools: CpuPools, statistics: Statistics) {
    this.#gpus = gpus;
    this.#pools = pools;
    this.#statistics = statistics;
  }

  /**
   * @param options what the CPU pool is given for the handler's halves
   * @throws HostError, CpuError
   */
  run(version: FunctionVersion, input: PoolInput, patience: Patience, options: InvokeOptions): Promise<GpuAttempt> {
    const reason = this.#gpus.whyNot(version.key);
    if (reason !== undefined) return Promise.resolve({ kind: 'offload', reason, done: () => undefined });
    return input.kind === 'tensors'
      ? this.#runTensors(version, input, patience)
      : this.#runHandler(version, input, patience, options);
  }

  async #runTensors(
    version: FunctionVersion,
    input: PoolInput & { kind: 'tensors' },
    patience: Patience,
  ): Promise<GpuAttempt> {
    const outcome = await this.#show(version, input.tensors, patience);
    if (outcome.kind === 'offload') return outcome;
    const { outputs } = outcome.result;
    const asked = input.outputs;
    const tensors = asked === undefined ? outputs : outputs.filter(({ name }) => asked.includes(name));
    const { queueMs, loadMs, inferMs } = outcome;
    return {
      kind: 'ran',
      result: {
        output: { kind: 'tensors', tensors },
        timings: { queueMs, loadMs, preprocessMs: 0, inferMs, postprocessMs: 0 },
        coldStart: outcome.start !== 'warm',
        batchSize: 1,
        instancePid: this.#gpus.pid,
      },
      placement: placementOf(outcome, false),
    };
  }

  /**
   * Both halves of the handler run in one instance of the CPU pool, the model between them on a GPU; or, where the scheduler says
   * so, in that very instance.
   */
  async #runHandler(
    version: FunctionVersion,
    input: PoolInput & { kind: 'request' },
    patience: Patience,
    options: InvokeOptions,
  ): Promise<GpuAttempt> {
    let attempts = 0;
    let isOver = false;
    let isAnswered = false;
    let latest: Shown | undefined;
    try {
      const result = await this.#pools.invoke(version.key, input, {
        ...options,
        runModel: async (tensors) => {
          const attempt = ++attempts;
          const outcome = await this.#show(version, tensors, patience);
          // An instance that died meanwhile has left the call to another.
          const isStale = isOver || attempt !== attempts;
          if (isStale && outcome.kind === 'offload') outcome.done(false);
          if (!isStale) latest = outcome;
          return outcome.kind === 'ran' ? outcome.result.outputs : undefined;
        },
      });
      isAnswered = true;
      if (latest?.kind !== 'ran') return { kind: 'ran', result, placement: onCpu(result, latest?.reason) };
      return { kind: 'ran', result: withGpuTimes(result, latest), placement: placementOf(latest, result.coldStart) };
    } catch (error) {
      // A worker on another machine may still have room for it.
      if (!(error instanceof CpuError) || error.code !== 'queue-full') throw error;
      return { kind: 'offload', reason: error.message, done: () => undefined };
    } finally {
      isOver = true;
      if (latest?.kind === 'offload') latest.done(isAnswered);
    }
  }

  /** @throws HostError */
  async #show(version: FunctionVersion, tensors: readonly Tensor[], patience: Patience): Promise<Shown> {
    const { signal, deadlineMs, arrivalMs, sloMs, priority } = patience;
    const wish: GpuWish = {
      sloMs: sloMs === undefined ? undefined : Math.max(0, sloMs - (performance.now() - arrivalMs)),
      priority,
    };
    const limit = deadlineMs === undefined ? undefined : new Limit(deadlineMs, signal);
    let outcome: GpuOutcome;
    try {
      if (limit?.isOver === true) throw deadlinePassed();
      outcome = await this.#gpus.invoke(version, tensors, limit?.signal ?? signal, wish);
    } catch (error) {
      throw gpuFailure(error, signal, version);
    } finally {
      limit?.lift();
    }
    if (outcome.kind === 'shed') {
      throw new HostError('deadline-passed', `${outcome.reason}, and this host sheds what would be late`);
    }
    if (outcome.kind === 'ran') {
      const observedMs = outcome.queueMs + outcome.loadMs + outcome.inferMs;
      if (observedMs > 0) {
        this.#statistics.of(version).gpuPredictionError.observe(Math.abs(outcome.predictedMs / observedMs - 1));
      }
    }
    return outcome;
  }
}

/** The longest that a timer takes; a deadline beyond it, 25 days, is none. */
const timerMsMax = 2 ** 31 - 1;

/** Aborts at a deadline, or with the client. It is lifted when nobody waits any more, so that no timer is left behind. */
class Limit {
  readonly #controller = new AbortController();
  readonly #client: AbortSignal | undefined;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly isOver: boolean;
  readonly #abort = (): void => this.#controller.abort();

  constructor(deadlineMs: number, client: AbortSignal | undefined) {
    const leftMs = Math.ceil(deadlineMs - performance.now());
    this.isOver = leftMs <= 0;
    this.#client = client;
    if (leftMs <= timerMsMax) this.#timer = setTimeout(this.#abort, Math.max(0, leftMs));
    if (client?.aborted === true) this.#abort();
    client?.addEventListener('abort', this.#abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  lift(): void {
    clearTimeout(this.#timer);
    this.#client?.removeEventListener('abort', this.#abort);
  }
}

const placementOf = ({ gpu, start, mode, rung }: RanOnGpu, isHandlerCold: boolean): Placement => ({
  kind: 'gpu',
  gpu,
  start,
  mode,
  ...(rung === undefined ? {} : { rung }),
  ...(isHandlerCold ? { isHandlerCold } : {}),
});

const onCpu = ({ coldStart }: PoolResult, reason: string | undefined): Placement => ({
  kind: 'cpu-pool',
  coldStart,
  ...(reason === undefined ? {} : { reason }),
});

/** What the instance took for the model's run was a wait for the GPU, its weights and the run itself. */
function withGpuTimes(result: PoolResult, { start, queueMs, loadMs, inferMs }: RanOnGpu): PoolResult {
  const { timings, coldStart } = result;
  return {
    ...result,
    timings: { ...timings, queueMs: timings.queueMs + queueMs, loadMs: timings.loadMs + loadMs, inferMs },
    coldStart: coldStart || start !== 'warm',
  };
}

const deadlinePassed = (): HostError =>
  new HostError('deadline-passed', 'the deadline passed while the invocation waited for a GPU');

/** By its name: the class itself would bring the engine, which a host without a GPU never loads. */
function isGpuError(error: unknown): error is GpuError {
  return error instanceof Error && error.name === 'GpuError';
}

function gpuFailure(error: unknown, signal: AbortSignal | undefined, version: FunctionVersion): unknown {
  if (!isGpuError(error)) return error;
  switch (error.code) {
    case 'cancelled':
      return signal?.aborted === true ? new HostError('client-gone', 'the client is gone') : deadlinePassed();
    default:
      return new HostError('inference-failed', `function '${version.name}' failed on the GPU: ${error.message}`);
  }
}
