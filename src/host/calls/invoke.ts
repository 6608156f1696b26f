/**
 * One invocation from its parsed input to its result, with all accounting. The scheduler decides where it runs;
 * invoke-placed.ts takes it there.
 */
import type {
  CallStages,
  CpuPools,
  InvokeOptions,
  InvokeOthers,
  PoolInput,
  PoolOutput,
  RunModel,
} from '../../cpu/index.ts';
import { HostError, toHostError } from '../errors.ts';
import { accounted, outcomeOf, withExplanation } from './invoke-failures.ts';
import { PlacedInvoker, type InvocationGpus } from './invoke-placed.ts';
import type { LiveScheduler } from '../../live/index.ts';
import type { Routing } from '../fleet-member/index.ts';
import type { InvocationRecord, InvocationRecorder, Ran } from './placement.ts';
import { missOf, OpenCalls, type BeforeCall, type CallsObserver, type MachineBusy, OpenCall } from './open-calls.ts';
import { OutOfService } from './out-of-service.ts';
import type { OtherPlace } from './other-place.ts';
import type { Statistics } from '../records/statistics.ts';
import type { HostConfig } from '../config/config.ts';
import type { FunctionVersion, ModelStore, Registry } from '../types.ts';
import { RowSplit, type RunPart } from '../split/index.ts';
import { heap } from '../../process/index.ts';

export interface InvocationOptions {
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** Overrides the function's SLO for this call. */
  readonly sloMs?: number | undefined;
  /** Instant after which it waits no longer; a run that has begun is finished. */
  readonly deadlineMs?: number | undefined;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Inferences in this request. */
  readonly rows: number;
  /** The functions that wait for this call, the outermost first; undefined if a client calls. */
  readonly chain?: readonly string[] | undefined;
  readonly before?: BeforeCall | undefined;
}

/** The fleet's interface for invocations. */
type OtherHosts = Pick<Routing, 'canPass' | 'run'>;

export interface InvokerOptions {
  readonly registry: Registry & Pick<ModelStore, 'hurry' | 'showRows'>;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  /** How busy the machine was in the last milliseconds; absent: not at all. */
  readonly machine?: (lastMs: number) => MachineBusy;
  /** Longest wait for a version that is still being validated. */
  readonly readyWaitMs?: number;
  /** Called for every invocation once it is counted; they may change. */
  readonly recorders: Iterable<InvocationRecorder>;
  /** Places beside the GPUs and the CPU pools: the workers, and those of other kinds. */
  readonly others?: readonly OtherPlace[];
  /** Decides where each invocation runs. */
  readonly live: LiveScheduler;
  /** Undefined if this host has no GPU. */
  readonly gpus?: InvocationGpus | undefined;
  /** Whether a version's files may leave this host, for room. */
  readonly isCache?: boolean;
  /** Other hosts that may run a call; undefined if this host is in no fleet. */
  readonly routing?: (() => OtherHosts | undefined) | undefined;
  /** Calls other functions for the handler of a version, in an invocation with these options. */
  readonly invokeOthers: (version: FunctionVersion, options: InvocationOptions) => InvokeOthers;
  /** Why this CPU can never run the version; undefined if it can. */
  readonly cpuRefusal?: (version: FunctionVersion) => string | undefined;
  /** How much longer a run takes as one of so many on this CPU; absent: runs do not slow each other down. */
  readonly slowdownAt?: (key: string, running: number) => number;
  /** When an unloaded function is loaded again. */
  readonly unloaded?: HostConfig['unloaded'];
  readonly observer?: CallsObserver;
}

/** Lower than any function's priority. */
const lowestPriority = 2 ** 31;
/** What the places say of a version that was removed: its file is gone, its pool, or its part in the scheduler. */
const saidOfRemoved: ReadonlySet<string> = new Set(['model-load-failed', 'not-ready', 'unknown-function']);
/** While a call waits, the host checks this often whether another host has got the function. */
const elsewhereLookMs = 50;

export class Invoker {
  readonly #options: InvokerOptions;
  readonly #placed: PlacedInvoker;
  readonly #split: RowSplit;
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly outOfService: OutOfService;
  readonly open: OpenCalls;

  constructor(options: InvokerOptions) {
    this.#options = options;
    const { registry, statistics, live, pools, gpus, others = [] } = options;
    this.open = new OpenCalls(options.observer);
    this.outOfService = new OutOfService({
      until: options.unloaded ?? 'until-call',
      pools,
      needsNoPool: ({ key, handlerPath }) =>
        handlerPath === undefined && gpus !== undefined && gpus.whyNot(key) === undefined,
      whyNowhere: (version) => this.#whyNowhere(version),
    });
    this.#placed = new PlacedInvoker({ live, pools, gpus, others });
    this.#split = new RowSplit({
      lanesOf: (key) => live.lanesOf(key),
      slowdownAt: options.slowdownAt,
    });
    registry.onChange(({ before, after }) => {
      const key = after?.key ?? before?.key;
      if (key !== undefined) for (const wake of this.#waiting.get(key) ?? []) wake();
      if (before === undefined || after !== undefined) return;
      this.outOfService.load(before);
      this.#split.forget(before.key);
      void live.functions.remove(before.key);
      statistics.forget(before, registry.versions(before.name).length === 0);
    });
  }

  /** Requests that ran in parts. */
  get splitRequests(): number {
    return this.#split.requests;
  }

  /**
   * The version once it can serve: at once if it is ready, else after a short wait for its validation.
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
      // Reports of hosts, not the registry, tell which hosts have it.
      const mostMs = this.#options.routing === undefined ? Infinity : elsewhereLookMs;
      const leftMs = Math.min(mostMs, untilMs - performance.now());
      if (leftMs <= 0) {
        const still = state.status === 'elsewhere' ? 'still being fetched from the store' : 'still being validated';
        throw new HostError('not-ready', `function '${asked.name}' version ${asked.version} is ${still}`);
      }
      await this.#change(asked.key, leftMs, signal);
      version = this.#options.registry.find(asked.name, asked.version);
    }
    throw new HostError('unknown-version', `version ${asked.version} of function '${asked.name}' was removed`);
  }

  #whyNowhere(version: FunctionVersion): string | undefined {
    const { cpuRefusal, gpus, live, routing } = this.#options;
    const refusal = cpuRefusal?.(version);
    if (refusal === undefined || version.state.status === 'elsewhere') return undefined;
    const mayRunElsewhere =
      (gpus !== undefined && gpus.whyNot(version.key) === undefined) ||
      Object.values(live.sheetOf(version.key)?.others ?? {}).some(Boolean) ||
      routing?.()?.canPass(version) === true;
    return mayRunElsewhere ? undefined : refusal;
  }

  /** Whether a call of it can start, here or at another host. */
  #canRun(version: FunctionVersion): boolean {
    const { state, metadata } = version;
    if (state.status === 'ready') return true;
    // A version that is still fetched or validated here may be ready there; without metadata its input cannot be read.
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
  async invoke(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    this.outOfService.called(version);
    if (options.before !== undefined) options.before.isInvocation = true;
    let ran: Ran | undefined;
    const { arrivalMs, sloMs = version.settings.sloMs } = options;
    const call = this.open.begin(version.name, arrivalMs, sloMs, options.before);
    try {
      this.outOfService.checkStopped(version);
      // Only this host knows which functions wait for it.
      const routing = options.chain === undefined ? this.#options.routing?.() : undefined;
      if (routing !== undefined) ran = await this.#atOtherHosts(routing, version, input, options, call);
      ran ??= await this.#here(version, input, options, call);
      // One that was asked before may still be sent them.
      if (routing !== undefined) ran = { ...ran, inputsAreSpent: false };
    } catch (error) {
      throw this.#failed(version, input, options, call, error);
    } finally {
      this.open.end(call);
    }
    this.#answered(version, options, call, ran);
    return ran;
  }

  /**
   * A call failed before it was an invocation, or after: each is counted once. One whose client left after its SLO had
   * passed is late, though its body never came or was never read.
   */
  failedAround(version: FunctionVersion, options: Omit<InvocationOptions, 'rows'>, error: unknown): HostError {
    const failure = toHostError(error);
    const { arrivalMs, sloMs = version.settings.sloMs, before } = options;
    const latencyMs = performance.now() - arrivalMs;
    const isLate = before?.isInvocation !== true && outcomeOf(failure, latencyMs, sloMs) === 'late';
    if (before?.isInvocation === true) accounted.add(failure);
    else if (isLate) {
      const call = new OpenCall(version.name, arrivalMs, sloMs, performance.now(), before);
      return this.#failed(version, { kind: 'tensors', tensors: [] }, { ...options, rows: 1 }, call, failure);
    }
    return failure;
  }

  // An asynchronous function keeps all its variables in memory of its own: these two are outside of it.

  #failed(
    version: FunctionVersion,
    input: PoolInput,
    options: InvocationOptions,
    call: OpenCall,
    error: unknown,
  ): HostError {
    const failure = this.#failureOf(version, input, error);
    accounted.add(failure);
    const latencyMs = performance.now() - call.arrivalMs;
    const outcome = outcomeOf(failure, latencyMs, call.sloMs);
    const miss = missOf(outcome, call, latencyMs, undefined, () => this.#machine(latencyMs));
    this.#record(version, options, call, { latencyMs, outcome, miss, failure });
    return failure;
  }

  #answered(version: FunctionVersion, options: InvocationOptions, call: OpenCall, ran: Ran): void {
    heap.trimWhenIdle();
    const { timings } = ran.result;
    const latencyMs = performance.now() - call.arrivalMs;
    const outcome = latencyMs <= call.sloMs ? 'in_slo' : 'late';
    const miss = missOf(outcome, call, latencyMs, timings, () => this.#machine(latencyMs));
    this.#record(version, options, call, { latencyMs, outcome, miss, ran });
  }

  #machine(lastMs: number): MachineBusy {
    return this.#options.machine?.(lastMs) ?? { isFull: false, loopDelayMs: 0 };
  }

  #record(
    { key, version }: FunctionVersion,
    { rows }: InvocationOptions,
    { functionName, arrivalMs, sloMs, hasRun }: OpenCall,
    end: Pick<InvocationRecord, 'latencyMs' | 'outcome' | 'miss' | 'ran' | 'failure'>,
  ): void {
    const { latencyMs, outcome, miss, ran, failure } = end;
    // Written out, as all that each call makes on its way: V8 takes microseconds to copy an object by spread.
    const record: InvocationRecord = {
      key,
      functionName,
      version,
      arrivalMs,
      latencyMs,
      sloMs,
      rows,
      hasRun,
      outcome,
      miss,
      ran,
      failure,
    };
    this.#options.statistics.record(record);
    for (const recorder of this.#options.recorders) recorder.record(record);
  }

  /** Runs a version without a client: neither counted nor recorded, and behind every client's call. */
  async tryOut(version: FunctionVersion, input: PoolInput): Promise<PoolOutput> {
    const options = { arrivalMs: performance.now(), rows: 1, priority: lowestPriority };
    try {
      return (await this.#here(version, input, options)).result.output;
    } catch (error) {
      throw toHostError(error);
    }
  }

  /** Runs a call that another host has passed on; that host accounts for it. @throws HostError */
  async runPassed(version: FunctionVersion, input: PoolInput, options: InvocationOptions): Promise<Ran> {
    this.outOfService.called(version);
    try {
      this.outOfService.checkStopped(version);
      return await this.#run(version, input, options);
    } catch (error) {
      throw this.#failureOf(version, input, error);
    }
  }

  /** Runs it at another host. Undefined: it must run here. */
  async #atOtherHosts(
    routing: OtherHosts,
    version: FunctionVersion,
    input: PoolInput,
    options: InvocationOptions,
    stages: CallStages,
  ): Promise<Ran | undefined> {
    const { sloMs, priority, arrivalMs } = options;
    const left = Math.max(0, (sloMs ?? version.settings.sloMs) - (performance.now() - arrivalMs));
    return await routing.run(version, input, { sloMs: left, priority }, poolOptions(version, options, stages));
  }

  /** Runs it here, once it is ready here. */
  #here(version: FunctionVersion, input: PoolInput, options: InvocationOptions, stages?: CallStages): Promise<Ran> {
    const { isCache, routing } = this.#options;
    if (isCache !== true && routing === undefined) return this.#run(version, input, options, stages);
    return this.#onceFetched(version, input, options, stages);
  }

  async #onceFetched(
    version: FunctionVersion,
    input: PoolInput,
    options: InvocationOptions,
    stages: CallStages | undefined,
  ): Promise<Ran> {
    if (version.state.status === 'ready') {
      try {
        return await this.#run(version, input, options, stages);
      } catch (error) {
        // Its content may just have been evicted, and is fetched again.
        if (this.#options.registry.find(version.name, version.version)?.state.status !== 'elsewhere') throw error;
      }
    }
    const ready = await this.#whenReady(version, options.signal, false);
    return await this.#run(ready, input, options, stages);
  }

  #run(version: FunctionVersion, input: PoolInput, options: InvocationOptions, stages?: CallStages): Promise<Ran> {
    const forPool = poolOptions(version, options, stages);
    const { invokeOthers } = this.#options;
    const isWaiting = version.rows?.kind === 'waiting';
    const mine: InvokeOptions =
      input.kind === 'tensors'
        ? forPool
        : {
            ...forPool,
            invokeOthers: invokeOthers(version, options),
            // What the handler makes of its request is known in the instance alone.
            ...(isWaiting ? { runModel: this.#showRows(version) } : {}),
          };
    const run = this.#placedHere(version, options, stages);
    if (isWaiting && input.kind === 'tensors') this.#options.registry.showRows(version, input.tensors);
    // Rows that may not be joined are not split either.
    if (version.rows?.kind !== 'independent') return run(input, mine);
    return this.#split.run(version, input, options.rows, mine, run);
  }

  /** Takes a look at what a handler would run; its instance runs it. */
  #showRows(version: FunctionVersion): RunModel {
    return (tensors) => {
      this.#options.registry.showRows(version, tensors);
      return Promise.resolve(undefined);
    };
  }

  #placedHere(
    version: FunctionVersion,
    { sloMs, priority, signal, deadlineMs, arrivalMs }: InvocationOptions,
    stages: CallStages | undefined,
  ): RunPart {
    return (part, own) => {
      const terms = { sloMs, sinceMs: arrivalMs, priority, deadlineMs, signal: own.signal ?? signal, stages };
      return this.#placed.run(version, part, terms, own);
    };
  }

  /** If the version was removed before a place had begun to run it, that is the reason, and not what the place says. */
  #failureOf(of: FunctionVersion, input: PoolInput, error: unknown): HostError {
    const { name, version, publishedAtMs } = of;
    const failure = withExplanation(toHostError(error), of, input);
    if (!saidOfRemoved.has(failure.code)) return failure;
    // Another publication may have the number by now.
    if (this.#options.registry.find(name, version)?.publishedAtMs === publishedAtMs) return failure;
    return new HostError('unknown-version', `version ${version} of function '${name}' was removed`);
  }

  /** Makes sure that an instance is ready. Resolves to the milliseconds that it took. */
  async load(version: FunctionVersion): Promise<number> {
    const startMs = performance.now();
    this.outOfService.load(version);
    if (version.state.status === 'elsewhere') await this.#whenReady(version, undefined, false);
    try {
      const isOnGpu = (await this.#options.gpus?.load(version)) === true;
      if (!isOnGpu) this.outOfService.checkPlaces(version);
      // If the model is on a GPU, its handler is enough.
      if (!isOnGpu) await this.#options.pools.load(version.key);
      else if (version.handlerPath !== undefined) await this.#options.pools.load(version.key, { handlerOnly: true });
    } catch (error) {
      throw toHostError(error);
    }
    return performance.now() - startMs;
  }

  /** Releases the function's instances; it is then not ready, see {@link OutOfService}. */
  async unload(version: FunctionVersion): Promise<void> {
    const startMs = performance.now();
    this.outOfService.unload(version);
    try {
      await Promise.all([this.#options.pools.unload(version.key), this.#options.live.functions.unload(version.key)]);
    } catch (error) {
      throw toHostError(error);
    }
    this.#options.statistics.unloadMilliseconds.observe(performance.now() - startMs);
  }
}

function poolOptions(version: FunctionVersion, options: InvocationOptions, stages?: CallStages): InvokeOptions {
  const { deadlineMs, signal } = options;
  return { deadlineMs, priority: options.priority ?? version.settings.priority, signal, stages };
}
