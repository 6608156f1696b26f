/**
 * One invocation from the moment its input is known to its result, and all accounting of it. The scheduler decides
 * where it runs, invoke-placed.ts takes it there.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type {
  CpuPools,
  InvokeOptions,
  InvokeOthers,
  PoolInput,
  PoolOutput,
  PoolResult,
  PoolTimings,
} from '../cpu/index.ts';
import { HostError, toHostError } from './errors.ts';
import { account, accounted } from './invoke-failures.ts';
import { PlacedInvoker, type InvocationGpus } from './invoke-placed.ts';
import type { LiveScheduler } from './live/index.ts';
import type { Routing } from './fleet-member/index.ts';
import { placementText, ranOn, type InvocationRecorder, type Placement, type Ran } from './placement.ts';
import type { Queueing } from './queueing/index.ts';
import type { Statistics, VersionStatistics } from './statistics.ts';
import type { HostConfig } from './config.ts';
import type { FunctionVersion, ModelStore, Registry } from './types.ts';
import { RowSplit, splitOverHosts, type RunPart } from './split/index.ts';
import { Unloaded } from './unloaded.ts';

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
  /** The functions whose answers wait for this one, the first first; undefined where a client asks. */
  readonly chain?: readonly string[] | undefined;
}

export interface Invocation {
  readonly output: PoolOutput;
  readonly timings: PoolTimings;
  readonly placement: Placement;
  readonly instancePid: number;
}

/** What an invocation needs of the fleet. */
type OtherHosts = Pick<Routing, 'canPass' | 'hostsForParts' | 'roundTripMs' | 'run' | 'runPart'>;

export interface InvokerOptions {
  readonly registry: Registry & Pick<ModelStore, 'hurry'>;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  /** Longest that a call waits for a version that is still being validated. */
  readonly readyWaitMs?: number;
  /** Told of every invocation as it ends. */
  readonly recorder?: InvocationRecorder | undefined;
  /** Where the workers are; without it everything runs here. */
  readonly queueing?: Queueing | undefined;
  /** Told of every answer, after it is accounted for; never rejects. */
  readonly onAnswered?: (version: FunctionVersion, input: PoolInput, output: PoolOutput) => Promise<void>;
  /** Decides where each invocation runs. */
  readonly live: LiveScheduler;
  /** Undefined where this host drives no GPU. */
  readonly gpus?: InvocationGpus | undefined;
  /** Other hosts that may run a call; undefined where this host is in no fleet. */
  readonly routing?: (() => OtherHosts | undefined) | undefined;
  /** How the handler of a version invokes other functions, in an invocation with these options. */
  readonly invokeOthers: (version: FunctionVersion, options: InvocationOptions) => InvokeOthers;
  /** What brings an unloaded function back. */
  readonly unloaded?: HostConfig['unloaded'];
}

/** Below every priority that a function can have. */
const lowestPriority = 2 ** 31;
/** Whether another host has come to hold a function is looked at so often while a call waits. */
const elsewhereLookMs = 50;

export class Invoker {
  readonly #options: InvokerOptions;
  readonly #placed: PlacedInvoker;
  readonly #split: RowSplit;
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly unloaded: Unloaded;

  constructor(options: InvokerOptions) {
    this.#options = options;
    this.unloaded = new Unloaded(options.unloaded ?? 'until-call');
    const { registry, statistics, live, pools, gpus, queueing } = options;
    this.#placed = new PlacedInvoker({ live, pools, gpus, overflow: queueing?.overflow });
    this.#split = new RowSplit({
      lanesOf: (key) => live.lanesOf(key),
      sleep: (ms, signal) => sleep(ms, undefined, { signal }),
    });
    registry.onChange(({ before, after }) => {
      const key = after?.key ?? before?.key;
      if (key !== undefined) for (const wake of this.#waiting.get(key) ?? []) wake();
      if (before === undefined || after !== undefined) return;
      this.unloaded.delete(before);
      this.#split.forget(before.key);
      void live.remove(before.key);
      statistics.forget(before, registry.versions(before.name).length === 0);
    });
  }

  /** Requests that ran in parts, and parts that were tried a second time. */
  get split(): { readonly requests: number; readonly hedged: number } {
    return this.#split;
  }

  /** Invocations that ran elsewhere after a worker or Redis had failed them. */
  get cameBack(): number {
    return this.#placed.cameBack;
  }

  /**
   * The version once it can serve: at once when it is ready, else after waiting a little for its validation.
   *
   * @throws HostError 'not-ready' with the reason
   */
  ready(version: FunctionVersion, signal?: AbortSignal): FunctionVersion | Promise<FunctionVersion> {
    return this.#canRun(version) ? version : this.#whenReady(version, signal);
  }

  /** @param mayPass whether it is enough that another host has it */
  async #whenReady(asked: FunctionVersion, signal: AbortSignal | undefined, mayPass = true): Promise<FunctionVersion> {
    this.#options.registry.hurry(asked);
    const untilMs = performance.now() + (this.#options.readyWaitMs ?? 5000);
    let version: FunctionVersion | undefined = asked;
    while (version !== undefined) {
      if (signal?.aborted) throw new HostError('client-gone', 'the client is gone');
      const { state } = version;
      if (mayPass ? this.#canRun(version) : version.state.status === 'ready') return version;
      if (state.status === 'unavailable') {
        throw new HostError(
          'not-ready',
          `function '${asked.name}' version ${asked.version} cannot serve: ${state.reason}`,
        );
      }
      // Which hosts have it is told by their reports, not by the registry.
      const mostMs = this.#options.routing === undefined ? Infinity : elsewhereLookMs;
      const leftMs = Math.min(mostMs, untilMs - performance.now());
      if (leftMs <= 0) {
        const still = state.status === 'elsewhere' ? 'still being fetched from other hosts' : 'still being validated';
        throw new HostError('not-ready', `function '${asked.name}' version ${asked.version} is ${still}`);
      }
      await this.#change(asked.key, leftMs, signal);
      version = this.#options.registry.find(asked.name, asked.version);
    }
    throw new HostError('unknown-version', `version ${asked.version} of function '${asked.name}' was removed`);
  }

  /** Whether a call of it can begin: here, or at another host. */
  #canRun(version: FunctionVersion): boolean {
    const { state, metadata } = version;
    if (state.status === 'ready') return true;
    // What is still fetched or validated here may be ready there; without metadata its input cannot be read.
    const mayPass = state.status !== 'unavailable' && metadata !== undefined;
    return mayPass && this.#options.routing?.()?.canPass(version) === true;
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
    this.unloaded.called(version);
    let ran: Ran | undefined;
    try {
      // Which functions wait for it is known here alone.
      const routing = options.chain === undefined ? this.#options.routing?.() : undefined;
      if (routing !== undefined) ran = await this.#atOtherHosts(routing, version, input, options);
      ran ??= await this.#here(version, input, options);
    } catch (error) {
      throw this.#failed(version, options, error);
    }
    return this.#answered(version, input, options, ran);
  }

  // An asynchronous function keeps all its variables in memory of its own: these two are outside of it.

  #failed(version: FunctionVersion, options: InvocationOptions, error: unknown): HostError {
    const failure = this.#failureOf(version, error);
    accounted.add(failure);
    const { arrivalMs, sloMs = version.settings.sloMs } = options;
    const latencyMs = performance.now() - arrivalMs;
    const outcome = account(this.#options.statistics.of(version), failure, latencyMs, sloMs);
    const { name: functionName } = version;
    this.#options.recorder?.record({ functionName, version: version.version, arrivalMs, latencyMs, sloMs, outcome });
    return failure;
  }

  #answered(version: FunctionVersion, input: PoolInput, options: InvocationOptions, ran: Ran): Invocation {
    const { result, placement } = ran;
    const { output, timings, coldStart, instancePid } = result;
    const { sloMs = version.settings.sloMs } = options;
    const statistics = this.#options.statistics.of(version);
    statistics.placed(placement);
    const latencyMs = this.#succeeded(statistics, result, options, sloMs);
    this.#options.recorder?.record({
      functionName: version.name,
      version: version.version,
      arrivalMs: options.arrivalMs,
      latencyMs,
      sloMs,
      outcome: latencyMs <= sloMs ? 'in_slo' : 'late',
      durationMs: timings.preprocessMs + timings.inferMs + timings.postprocessMs,
      handlerMs: timings.preprocessMs + timings.postprocessMs,
      placement: placementText(placement),
      gpu: placement.kind === 'gpu' ? placement.gpu : undefined,
      overflow: placement.overflow?.reason,
      predictedMs: placement.predictedMs,
      coldCause: placement.coldCause,
      ranOn: ranOn(placement),
      cold: coldStart,
      loadMs: timings.loadMs,
      queueMs: timings.queueMs,
    });
    void this.#options.onAnswered?.(version, input, output);
    return { output, timings, placement, instancePid };
  }

  /**
   * Runs a version on behalf of no client: neither counted nor recorded, and behind every call that somebody waits for.
   */
  async tryOut(version: FunctionVersion, input: PoolInput): Promise<PoolOutput> {
    const options = { arrivalMs: performance.now(), rows: 1, priority: lowestPriority };
    try {
      return (await this.#here(version, input, options)).result.output;
    } catch (error) {
      throw toHostError(error);
    }
  }

  /** Runs a call that another host has passed on, which accounts for it. @throws HostError */
  async runPassed(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    this.unloaded.called(version);
    try {
      return await this.#run(version, input, options);
    } catch (error) {
      throw this.#failureOf(version, error);
    }
  }

  /** At another host, or in parts at several. Undefined: it is to run here. */
  async #atOtherHosts(
    routing: OtherHosts,
    version: FunctionVersion,
    input: PoolInput,
    options: InvocationOptions,
  ): Promise<Ran | undefined> {
    const { sloMs, priority, arrivalMs, rows } = options;
    const left = Math.max(0, (sloMs ?? version.settings.sloMs) - (performance.now() - arrivalMs));
    const wish = { sloMs: left, priority };
    const { lanes } = this.#options.live.lanesOf(version.key);
    const mayPart = rows > 1 && lanes > 0 && input.kind === 'tensors' && version.state.status === 'ready';
    const hosts = mayPart ? routing.hostsForParts(version) : [];
    if (hosts.length === 0) return await routing.run(version, input, wish, poolOptions(version, options));
    const run = this.#placedHere(version, options);
    return await splitOverHosts(
      this.#split,
      { routing, hosts, lanes, version, input, rows, wish, run },
      poolOptions(version, options),
    );
  }

  /** Here, once it is ready here. */
  #here(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    if (this.#options.routing === undefined) return this.#run(version, input, options);
    return this.#onceFetched(version, input, options);
  }

  async #onceFetched(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    if (version.state.status === 'ready') {
      try {
        return await this.#run(version, input, options);
      } catch (error) {
        // Its content may have been dropped for room just then, and is fetched again.
        if (this.#options.registry.find(version.name, version.version)?.state.status !== 'elsewhere') throw error;
      }
    }
    const ready = await this.#whenReady(version, options.signal, false);
    return await this.#run(ready, input, options);
  }

  #run(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    const forPool = poolOptions(version, options);
    const { invokeOthers } = this.#options;
    const mine = input.kind === 'request' ? { ...forPool, invokeOthers: invokeOthers(version, options) } : forPool;
    return this.#split.run(version, input, options.rows, mine, this.#placedHere(version, options));
  }

  #placedHere(
    version: FunctionVersion,
    { sloMs, priority, signal, deadlineMs, arrivalMs }: InvocationOptions,
  ): RunPart {
    // The scheduler counts from now on, the caller from the arrival of its request.
    const left = sloMs === undefined ? undefined : Math.max(0, sloMs - (performance.now() - arrivalMs));
    return (part, own) => {
      const wish = { sloMs: left, priority, deadlineMs, signal: own.signal ?? signal };
      return this.#placed.run(version, part, wish, own);
    };
  }

  /** Whose model was removed before an instance could load it has asked for what is not there any more. */
  #failureOf({ name, version }: FunctionVersion, error: unknown): HostError {
    const failure = toHostError(error);
    if (failure.code !== 'model-load-failed' || this.#options.registry.find(name, version) !== undefined)
      return failure;
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
    statistics.lastCallAtMs = statistics.lastInferenceAtMs;
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
    this.#options.statistics.queueMilliseconds.observe(timings.queueMs);
    statistics.inferenceSeconds.observe(timings.inferMs / 1000);
    statistics.totalSeconds.observe(totalMs / 1000);
    statistics.outcomes[totalMs <= sloMs ? 'in_slo' : 'late']++;
    if (!coldStart) return totalMs;
    statistics.coldStarts++;
    statistics.loadSeconds.observe(timings.loadMs / 1000);
    this.#options.statistics.cacheMissMilliseconds.observe(timings.loadMs);
    return totalMs;
  }

  /** Has an instance ready. Resolves to the milliseconds that took. */
  async load(version: FunctionVersion): Promise<number> {
    const startMs = performance.now();
    this.unloaded.delete(version);
    if (version.state.status === 'elsewhere') await this.#whenReady(version, undefined, false);
    try {
      const isOnGpu = (await this.#options.gpus?.load(version)) === true;
      // Beside a model on a GPU its handler is enough.
      if (!isOnGpu) await this.#options.pools.load(version.key);
      else if (version.handlerPath !== undefined) await this.#options.pools.load(version.key, { handlerOnly: true });
    } catch (error) {
      throw toHostError(error);
    }
    return performance.now() - startMs;
  }

  /** Gives the function's instances back; it is not ready any more, see {@link Unloaded}. */
  async unload(version: FunctionVersion): Promise<void> {
    const startMs = performance.now();
    this.unloaded.add(version);
    try {
      await Promise.all([this.#options.pools.unload(version.key), this.#options.live.unload(version.key)]);
    } catch (error) {
      throw toHostError(error);
    }
    this.#options.statistics.unloadMilliseconds.observe(performance.now() - startMs);
  }
}

function poolOptions(version: FunctionVersion, options: InvocationOptions): InvokeOptions {
  const { deadlineMs, signal } = options;
  return { deadlineMs, priority: options.priority ?? version.settings.priority, signal };
}
