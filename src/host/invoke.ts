/**
 * One invocation from the moment its input is known to its result, and all accounting of it. It is shown to the GPUs' scheduler
 * first where there is one (invoke-gpu.ts); what it does not take is run by the function's CPU pool, here or at a worker.
 */
import type { CpuPools, InvokeOptions, PoolInput, PoolOutput, PoolResult, PoolTimings } from '../cpu/index.ts';
import type { Start } from '../schedule/index.ts';
import { HostError, toHostError, type ErrorCode } from './errors.ts';
import { GpuInvoker, type InvocationGpus } from './invoke-gpu.ts';
import { Placer, type Queueing } from './queueing/index.ts';
import type { FailureReason, Outcome, Statistics, VersionStatistics } from './statistics.ts';
import type { InvocationRecorder, RanOn } from './recorder.ts';
import type { FunctionVersion, Registry } from './types.ts';

/** Where an invocation ran. */
export type Placement =
  /** `reason`: why not on a GPU, where a GPU could have run it. */
  | { readonly kind: 'cpu-pool'; readonly coldStart: boolean; readonly reason?: string }
  /** `mode`: how the missing weights came, where some were missing. `isHandlerCold`: it waited for its handler to be loaded. */
  | {
      readonly kind: 'gpu';
      readonly gpu: number;
      readonly start: Start;
      readonly mode: string;
      /** Which of its plans it ran under, for a function that has several. */
      readonly rung?: string;
      readonly isHandlerCold?: boolean;
    }
  /** At a worker on another machine; `reason`: why not here. */
  | { readonly kind: 'remote-worker'; readonly coldStart: boolean; readonly worker: string; readonly reason: string };

/** The placement as `X-Turntable-Placement` says it. */
export function placementText(placement: Placement): string {
  switch (placement.kind) {
    case 'cpu-pool':
      return `cpu pool ${placement.coldStart ? 'cold' : 'warm'}${placement.reason === undefined ? '' : ` overflow: ${inHeader(placement.reason)}`}`;
    case 'gpu': {
      const { gpu, start, mode, isHandlerCold = false } = placement;
      return `gpu${gpu} ${start}${start === 'warm' ? '' : ` ${mode}`}${isHandlerCold ? ', handler cold' : ''}`;
    }
    case 'remote-worker': {
      const { worker, coldStart, reason } = placement;
      // The name comes from another machine and goes into a header.
      const name = worker.replaceAll(/[^\x21-\x7e]/g, '?');
      return `remote worker ${name}${coldStart ? ' cold' : ''} overflow: ${reason}`;
    }
  }
}

/** A header is one line of printable ASCII, and nobody reads a long one. */
function inHeader(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]+/g, ' ').slice(0, 200);
}

/** Whether somebody waited for weights, or for a handler. */
export function isColdStart(placement: Placement): boolean {
  if (placement.kind !== 'gpu') return placement.coldStart;
  return placement.start !== 'warm' || placement.isHandlerCold === true;
}

/** The placement as the history counts it. */
export function ranOn(placement: Placement): RanOn {
  switch (placement.kind) {
    case 'cpu-pool':
      return 'cpu';
    case 'gpu':
      return isColdStart(placement) ? 'gpuCold' : 'gpuWarm';
    case 'remote-worker':
      return 'remote';
  }
}

export interface InvocationOptions {
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** Overrides the function's SLO for this call. */
  readonly sloMs?: number | undefined;
  /** Instant after which waiting is given up; a run that has begun is finished. */
  readonly deadlineMs?: number | undefined;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Inferences in this request. */
  readonly rows: number;
}

export interface Invocation {
  readonly output: PoolOutput;
  readonly timings: PoolTimings;
  readonly placement: Placement;
  readonly instancePid: number;
}

export interface InvokerOptions {
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  /** Longest that a call waits for a version that is still being validated. */
  readonly readyWaitMs?: number;
  /** Told of every invocation as it ends. */
  readonly recorder?: InvocationRecorder | undefined;
  /** Where the pools' overflow goes; without it everything runs here. */
  readonly queueing?: Queueing | undefined;
  /** The GPUs and their scheduler; without them everything runs in the pools. */
  readonly gpus?: InvocationGpus | undefined;
  /** Instances of a version that this machine can run at the same time. */
  readonly slotsOf?: (version: FunctionVersion) => number;
  /** Milliseconds until its pool here would answer one more; undefined where nothing is known of it yet. */
  readonly predictLocalMs?: (version: FunctionVersion) => number | undefined;
}

export class Invoker {
  readonly #pools: CpuPools;
  readonly #registry: Registry;
  readonly #statistics: Statistics;
  readonly #readyWaitMs: number;
  readonly #recorder: InvocationRecorder | undefined;
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly placer: Placer;
  readonly #gpus: InvocationGpus | undefined;
  readonly #gpu: GpuInvoker | undefined;

  constructor(options: InvokerOptions) {
    const {
      registry,
      pools,
      statistics,
      readyWaitMs = 5000,
      recorder,
      queueing,
      slotsOf = () => 1,
      predictLocalMs,
    } = options;
    this.#registry = registry;
    this.#gpus = options.gpus;
    this.#pools = pools;
    this.placer = new Placer({ pools, queueing, slotsOf, ...(predictLocalMs && { predictLocalMs }) });
    this.#statistics = statistics;
    this.#gpu = options.gpus && new GpuInvoker(options.gpus, pools, statistics);
    this.#readyWaitMs = readyWaitMs;
    this.#recorder = recorder;
    registry.onChange(({ before, after }) => {
      const key = after?.key ?? before?.key;
      if (key !== undefined) for (const wake of this.#waiting.get(key) ?? []) wake();
      if (before !== undefined && after === undefined) {
        this.placer.forget(before);
        this.#statistics.forget(before, this.#registry.versions(before.name).length === 0);
      }
    });
  }

  /**
   * The version once it can serve: at once when it is ready, else after waiting a little for its validation.
   *
   * @throws HostError 'not-ready' with the reason
   */
  ready(version: FunctionVersion, signal?: AbortSignal): FunctionVersion | Promise<FunctionVersion> {
    return version.state.status === 'ready' ? version : this.#whenReady(version, signal);
  }

  async #whenReady(asked: FunctionVersion, signal: AbortSignal | undefined): Promise<FunctionVersion> {
    const untilMs = performance.now() + this.#readyWaitMs;
    let version: FunctionVersion | undefined = asked;
    while (version !== undefined) {
      if (signal?.aborted) throw new HostError('client-gone', 'the client is gone');
      const { state } = version;
      if (state.status === 'ready') return version;
      if (state.status === 'unavailable') {
        throw new HostError(
          'not-ready',
          `function '${asked.name}' version ${asked.version} cannot serve: ${state.reason}`,
        );
      }
      const leftMs = untilMs - performance.now();
      if (leftMs <= 0) {
        throw new HostError('not-ready', `function '${asked.name}' version ${asked.version} is still being validated`);
      }
      await this.#change(asked.key, leftMs, signal);
      version = this.#registry.find(asked.name, asked.version);
    }
    throw new HostError('unknown-version', `version ${asked.version} of function '${asked.name}' was removed`);
  }

  /** Resolves at the next change of a version, when the time is over, or when the client is gone. */
  #change(key: string, waitMs: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const waiting = this.#waiting.get(key) ?? new Set();
      const wake = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        waiting.delete(wake);
        if (waiting.size === 0) this.#waiting.delete(key);
        resolve();
      };
      const timer = setTimeout(wake, waitMs);
      signal?.addEventListener('abort', wake, { once: true });
      waiting.add(wake);
      this.#waiting.set(key, waiting);
    });
  }

  /**
   * Runs one invocation of a version that is ready, and accounts for it.
   *
   * @throws HostError
   */
  async invoke(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Invocation> {
    const statistics = this.#statistics.of(version);
    const sloMs = options.sloMs ?? version.settings.sloMs;
    let ran: Ran;
    try {
      ran = await this.#run(version, input, options);
    } catch (error) {
      const failure = this.#failureOf(version, error);
      const latencyMs = performance.now() - options.arrivalMs;
      const outcome = account(statistics, failure, latencyMs, sloMs);
      const { arrivalMs } = options;
      this.#recorder?.record({ functionName: version.name, arrivalMs, latencyMs, sloMs, outcome });
      throw failure;
    }
    const { result, placement } = ran;
    const { output, timings, coldStart, instancePid } = result;
    if (placement.kind === 'remote-worker') statistics.overflowed++;
    if (placement.kind === 'gpu') {
      const { start, mode } = placement;
      if (start !== 'warm') statistics.gpuColdStarts.set(mode, (statistics.gpuColdStarts.get(mode) ?? 0) + 1);
      else if (!isColdStart(placement)) statistics.gpuHits++;
    }
    const latencyMs = this.#succeeded(statistics, result, options, sloMs);
    this.#recorder?.record({
      functionName: version.name,
      arrivalMs: options.arrivalMs,
      latencyMs,
      sloMs,
      outcome: latencyMs <= sloMs ? 'in_slo' : 'late',
      durationMs: timings.preprocessMs + timings.inferMs + timings.postprocessMs,
      placement: placementText(placement),
      ranOn: ranOn(placement),
      cold: coldStart,
      loadMs: timings.loadMs,
      queueMs: timings.queueMs,
    });
    return { output, timings, placement, instancePid };
  }

  async #run(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    if (this.#gpu === undefined) return await this.#inPool(version, input, options, undefined);
    const { signal, deadlineMs } = options;
    const attempt = await this.#gpu.run(
      version,
      input,
      { ...options, signal, deadlineMs },
      poolOptions(version, options),
    );
    if (attempt.kind === 'ran') return attempt;
    let isAnswered = false;
    try {
      const ran = await this.#inPool(version, input, options, attempt.reason);
      isAnswered = true;
      return ran;
    } finally {
      attempt.done(isAnswered);
    }
  }

  /** @param reason why a GPU does not run it, where one could have */
  async #inPool(
    version: FunctionVersion,
    input: PoolInput,
    options: InvocationOptions,
    reason: string | undefined,
  ): Promise<Ran> {
    const { result, remote } = await this.placer.run(version, input, poolOptions(version, options));
    const { coldStart } = result;
    if (remote !== undefined) return { result, placement: { kind: 'remote-worker', coldStart, ...remote } };
    return { result, placement: { kind: 'cpu-pool', coldStart, ...(reason === undefined ? {} : { reason }) } };
  }

  /** Whose model was removed before an instance could load it has asked for what is not there any more. */
  #failureOf({ name, version }: FunctionVersion, error: unknown): HostError {
    const failure = toHostError(error);
    if (failure.code !== 'model-load-failed' || this.#registry.find(name, version) !== undefined) return failure;
    return new HostError('unknown-version', `version ${version} of function '${name}' was removed`);
  }

  /** Gives the milliseconds from arrival to answer. */
  #succeeded(statistics: VersionStatistics, result: PoolResult, options: InvocationOptions, sloMs: number): number {
    const { timings, coldStart, batchSize } = result;
    const totalMs = performance.now() - options.arrivalMs;
    statistics.successes++;
    statistics.inferences += options.rows;
    statistics.requestMs += totalMs;
    statistics.lastInferenceAtMs = Date.now();
    statistics.addParts(
      {
        queueMs: timings.queueMs,
        computeInputMs: timings.preprocessMs,
        computeInferMs: timings.inferMs,
        computeOutputMs: timings.postprocessMs,
      },
      batchSize,
    );
    statistics.queueSeconds.observe(timings.queueMs / 1000);
    statistics.inferenceSeconds.observe(timings.inferMs / 1000);
    statistics.totalSeconds.observe(totalMs / 1000);
    statistics.outcomes[totalMs <= sloMs ? 'in_slo' : 'late']++;
    if (!coldStart) return totalMs;
    statistics.coldStarts++;
    statistics.loadSeconds.observe(timings.loadMs / 1000);
    this.#statistics.cacheMissMilliseconds.observe(timings.loadMs);
    return totalMs;
  }

  /** Has an instance ready. Resolves to the milliseconds that took. */
  async load(version: FunctionVersion): Promise<number> {
    const startMs = performance.now();
    try {
      const isOnGpu = (await this.#gpus?.load(version)) === true;
      // Beside a model on a GPU its handler is enough.
      if (!isOnGpu) await this.#pools.load(version.key);
      else if (version.handlerPath !== undefined) await this.#pools.load(version.key, { handlerOnly: true });
    } catch (error) {
      throw toHostError(error);
    }
    return performance.now() - startMs;
  }

  /** Gives the function's instances back. */
  async unload(version: FunctionVersion): Promise<void> {
    const startMs = performance.now();
    try {
      await Promise.all([this.#pools.unload(version.key), this.#gpus?.unload(version)]);
    } catch (error) {
      throw toHostError(error);
    }
    this.#statistics.unloadMilliseconds.observe(performance.now() - startMs);
  }
}

interface Ran {
  readonly result: PoolResult;
  readonly placement: Placement;
}

function poolOptions(version: FunctionVersion, options: InvocationOptions): InvokeOptions {
  const { deadlineMs, signal } = options;
  return {
    priority: options.priority ?? version.settings.priority,
    ...(deadlineMs === undefined ? undefined : { deadlineMs }),
    ...(signal === undefined ? undefined : { signal }),
  };
}

function account(
  statistics: VersionStatistics,
  failure: HostError,
  totalMs: number,
  sloMs: number,
): Outcome | undefined {
  statistics.failures[reasonOf(failure.code)]++;
  statistics.failureMs += totalMs;
  const outcome = outcomeOf(failure, totalMs, sloMs);
  if (outcome !== undefined) statistics.outcomes[outcome]++;
  return outcome;
}

/** The outcome of a failed invocation; undefined where the client's own input or leaving was the cause. */
function outcomeOf(failure: HostError, totalMs: number, sloMs: number): Outcome | undefined {
  switch (failure.code) {
    case 'queue-full':
    case 'deadline-passed':
    case 'draining':
      return 'shed';
    case 'client-gone':
      // Who leaves after the SLO has passed was served too late; who leaves before made no claim on it.
      return totalMs > sloMs ? 'late' : undefined;
    default:
      return failure.status >= 500 ? 'failed' : undefined;
  }
}

function reasonOf(code: ErrorCode): FailureReason {
  switch (code) {
    case 'queue-full':
    case 'deadline-passed':
    case 'draining':
      return 'REJECTED';
    case 'client-gone':
      return 'CANCELED';
    case 'inference-failed':
    case 'inference-input':
    case 'inference-timeout':
    case 'instance-died':
    case 'model-load-failed':
    case 'handler-failed':
    case 'handler-input':
    case 'handler-timeout':
      return 'BACKEND';
    default:
      return 'OTHER';
  }
}
