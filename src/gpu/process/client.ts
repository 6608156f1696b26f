/** The host's side of the GPU process. */
import { childEnvironment, compiledModule, GoneError, Remote, type RemoteOptions } from '../../process/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import type { FrameMemory, Tensor } from '../../tensor/index.ts';
import { getOrMake, given, type CancelSignal } from '../../tools/index.ts';
import type { HybridPlan, HybridPromise, MeasureOperatorsOptions } from '../hybrid/index.ts';
import type { MeasuredLayerProfile, MeasuredTopology, MeasureOptions } from '../measure/types.ts';
import { asGpuError, GpuError, type LoadResult, type RunResult, type Staged } from '../types.ts';
import {
  timingsOf,
  type GpuApi,
  type GpuCheck,
  type GpuCoverage,
  type GpuFunctionSpec,
  type GpuProcessInfo,
  type GpuProcessSettings,
  type GpuProcessState,
  type GpuRunOptions,
  type ShapeCoverage,
  type ShapeOrder,
} from './protocol.ts';
import { SentPlans } from './sent-plans.ts';

const module = compiledModule('./main.js', import.meta.url);

/**
 * A process whose thread blocks for this long hangs: the longest of its calls, pinning a slab, takes a fraction of a
 * second.
 */
const silenceMsMax = 10_000;

/** Reading files, compiling and waiting for GPUs share libuv's threads, four by default. */
const threadPoolSize = '16';

export interface GpuProcessOptions extends GpuProcessSettings {
  /** Receives lines of the process. Default: standard error. */
  readonly log?: (line: string) => void;
  /** A process that answers nothing for this long counts as hanging and is ended. Default: ten seconds. */
  readonly silenceMsMax?: number;
  /** In which outputs count while they arrive. A run whose outputs have no room rejects with its error. */
  readonly answers?: FrameMemory | undefined;
  /** Added to this process's environment: where the driver's libraries are. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** A load names no variant: its plan says which layers it loads. */
export type GpuLoadOptions = Omit<GpuRunOptions, 'variant' | 'trace' | 'onLaneFree' | 'lends'>;

export type GpuCheckOptions = Omit<GpuRunOptions, 'trace'> &
  (
    | { readonly inputs?: undefined; readonly outputs?: undefined }
    | { readonly inputs: readonly Tensor[]; readonly outputs?: readonly Tensor[] | undefined }
  );

/** `up`: it answers. `broken`: it lives, but its context is poisoned or a device is lost; only a restart helps. */
export type GpuProcessStatus = 'starting' | 'up' | 'broken' | 'dead' | 'stopped';

/**
 * The GPU process, as the host uses it. All methods reject with {@link GpuError}. After `died`, or a code that breaks
 * the process, no answer was given, so an invocation can be tried elsewhere.
 */
export class GpuClient {
  readonly #options: GpuProcessOptions;
  #settings: GpuProcessSettings;
  readonly #specs = new Map<string, GpuFunctionSpec>();
  /** By function and name. */
  readonly #plans = new Map<string, Map<string, HybridPlan>>();
  readonly #sentPlans = new SentPlans();
  readonly #listeners: ((reason: string) => void)[] = [];
  #process: Remote<GpuApi>;
  #status: GpuProcessStatus = 'starting';
  #ready: Promise<GpuProcessInfo>;

  constructor(options: GpuProcessOptions) {
    const {
      log: _log,
      environment: _environment,
      silenceMsMax: _silenceMsMax,
      answers: _answers,
      ...settings
    } = options;
    this.#options = options;
    this.#settings = settings;
    this.#process = this.#start();
    this.#ready = this.#open();
  }

  /**
   * Resolves with the process's information about the GPUs. Rejects if there is no GPU, or no memory for the engine.
   */
  get ready(): Promise<GpuProcessInfo> {
    return this.#ready;
  }

  get status(): GpuProcessStatus {
    return this.#status;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** How long it has answered nothing. */
  get silentMs(): number {
    return this.#process.silentMs;
  }

  /** Called when the process has died or broken, with the reason; not after `stop`. */
  onDown(listener: (reason: string) => void): void {
    this.#listeners.push(listener);
  }

  /** Registers a function: compiles it for its shapes, or reports unsupported operators. */
  async register(spec: GpuFunctionSpec): Promise<GpuCoverage> {
    await this.#ready;
    const answer = await this.#process.call('register', { spec });
    // Runs that came before it have left no plan there.
    this.#sentPlans.forget(spec.key);
    if (answer.covered || answer.layers !== undefined) this.#specs.set(spec.key, spec);
    return answer;
  }

  async unregister(key: string): Promise<void> {
    this.#specs.delete(key);
    this.#plans.delete(key);
    this.#sentPlans.forget(key);
    await this.#process.call('unregister', { key });
  }

  /** Runs a function. Without `onLaneFree` the caller counts the GPU as free for the next run at once. */
  async run(
    key: string,
    inputs: readonly Tensor[],
    { gpu, plan, variant, trace = false, signal, onLaneFree }: GpuRunOptions,
  ): Promise<RunResult> {
    refuseCancelled(signal);
    const placed = this.#sentPlans.place(key, plan);
    const order = { key, gpu, plan: placed, trace, notes: onLaneFree !== undefined, variant };
    const options = { tensors: inputs, cancel: signal, onNote: onLaneFree };
    const { answer, tensors } = await this.#process.exchange('run', order, options);
    // Written out: V8 takes microseconds to copy an object by spread.
    const { start, precision, loadedBytes, fromDisk, graph, timeline } = answer;
    const timings = timingsOf(tensors.at(-1)!);
    return { outputs: tensors.slice(0, -1), start, precision, loadedBytes, fromDisk, graph, timings, timeline };
  }

  /**
   * Runs a function on a GPU and in ONNX Runtime on the same inputs, and compares. Without inputs, random ones of the
   * model's types are used, in the shapes of its registration. With `outputs` from an earlier run, only ONNX Runtime
   * runs.
   */
  async check(key: string, { gpu, plan, variant, inputs, outputs, signal }: GpuCheckOptions): Promise<GpuCheck> {
    refuseCancelled(signal);
    const asked = { inputs: inputs?.length ?? ('drawn' as const), isAnswered: outputs !== undefined };
    const tensors = [...(inputs ?? []), ...(outputs ?? [])];
    const order = { key, gpu, plan, ...asked, ...given({ variant }) };
    return await this.#process.call('check', order, { tensors, cancel: signal });
  }

  /**
   * Makes the programs for further input shapes, including those of its plans over GPU and CPU, so that no call waits
   * for them. The result says nothing about other shapes.
   */
  async prepare(key: string, order: ShapeOrder): Promise<ShapeCoverage> {
    return await this.#process.call('prepare', { key, order });
  }

  /** Brings weights to a GPU without executing. */
  async load(key: string, { gpu, plan, signal }: GpuLoadOptions): Promise<LoadResult> {
    refuseCancelled(signal);
    return await this.#process.call('load', { key, gpu, plan }, { cancel: signal });
  }

  /** Keeps the first `layers` of the layers on a GPU. Resolves with the bytes freed. */
  async trim(key: string, gpu: number, layers: number): Promise<number> {
    return await this.#process.call('trim', { key, gpu, layers });
  }

  /** Frees the function's other layers. Resolves with the bytes freed. */
  async keep(key: string, gpu: number, layers: readonly number[]): Promise<number> {
    return await this.#process.call('keep', { key, gpu, layers });
  }

  /** Frees layers that functions share, for all of these. Resolves with the bytes freed. */
  async release(key: string, gpu: number, layers: readonly number[]): Promise<number> {
    return await this.#process.call('release', { key, gpu, layers });
  }

  /** Adds a plan over GPU and CPU, or replaces the one of this name. Resolves with its memory and latency. */
  async addPlan(key: string, plan: HybridPlan): Promise<HybridPromise> {
    const promise = await this.#process.call('addPlan', { key, plan });
    getOrMake(this.#plans, key, () => new Map<string, HybridPlan>()).set(plan.id, plan);
    return promise;
  }

  async dropPlan(key: string, plan: string): Promise<void> {
    this.#plans.get(key)?.delete(plan);
    await this.#process.call('dropPlan', { key, plan });
  }

  /** Times each operator on the GPU and on cores. Nothing else should run meanwhile. */
  async measureOperators(key: string, options: MeasureOperatorsOptions): Promise<GraphProfile> {
    return await this.#process.call('operators', { key, options });
  }

  evict(key: string, gpu: number): Promise<number> {
    return this.trim(key, gpu, 0);
  }

  /** Reads layers that are not there from disk into pinned memory; default: all. */
  async stage(key: string, layers?: readonly number[]): Promise<Staged> {
    return await this.#process.call('stage', { key, ...given({ layers }) });
  }

  /** Frees pinned memory of layers, once nothing reads from it. Resolves with the bytes; a later `stage` finds them. */
  async drop(key: string, layers: readonly number[], ofAll = false): Promise<number> {
    return await this.#process.call('drop', { key, layers, ofAll });
  }

  async state(): Promise<GpuProcessState> {
    return await this.#process.call('state');
  }

  /** Times each layer. Nothing else should run on that GPU meanwhile. */
  async measure(key: string, options: MeasureOptions): Promise<MeasuredLayerProfile> {
    return await this.#process.call('measure', { key, options });
  }

  async topology(copyBytes?: number): Promise<MeasuredTopology> {
    return await this.#process.call('topology', given({ copyBytes }));
  }

  /** How much this process, and the next, may pin. */
  async resizeHost(hostBytes: number): Promise<void> {
    this.#settings = { ...this.#settings, hostBytes };
    if (this.#status === 'up') await this.#process.call('resizeHost', { hostBytes });
  }

  /**
   * Starts a new process, which knows no functions: {@link registerAgain} restores each. Requests under way are
   * rejected.
   */
  async reopen(): Promise<GpuProcessInfo> {
    this.#status = 'stopped';
    await this.#process.end('it is restarted');
    this.#status = 'starting';
    this.#process = this.#start();
    this.#ready = this.#open();
    return await this.#ready;
  }

  /** Registers a function of an earlier process again, with its plans; does nothing if it was not registered. */
  async registerAgain(key: string): Promise<void> {
    const spec = this.#specs.get(key);
    if (spec === undefined) return;
    await this.#process.call('register', { spec });
    this.#sentPlans.forget(key);
    for (const plan of this.#plans.get(key)?.values() ?? []) {
      await this.#process.call('addPlan', { key, plan });
    }
  }

  /** Ends the process at once, as if it had died: requests under way are rejected, and listeners are called. */
  kill(reason: string): void {
    void this.#process.end(reason);
  }

  /** Frees everything and ends the process. */
  async stop(): Promise<void> {
    const ending = this.#process;
    if (this.#status === 'up') {
      try {
        await this.#process.call('close');
      } catch {
        // The process ends in any case.
      }
    }
    this.#status = 'stopped';
    await ending.end('it was stopped');
  }

  #start(): Remote<GpuApi> {
    const { log = (line: string): boolean => process.stderr.write(`${line}\n`), environment, answers } = this.#options;
    const options: RemoteOptions = {
      what: 'the GPU process',
      process: {
        module,
        environment: { UV_THREADPOOL_SIZE: threadPoolSize, ...childEnvironment(), ...environment },
        purpose: 'pinned',
        sharesTensors: true,
        log,
      },
      answers,
      errors: { GpuError },
      errorOf: (cause) => {
        if (cause instanceof GoneError) return asGpuError(cause, 'died');
        const error = asGpuError(cause);
        if (error.isFatal && started === this.#process && this.#status === 'up') this.#down('broken', error.message);
        return error;
      },
      onEnd: ({ reason }) => {
        if (started !== this.#process || this.#status === 'stopped') return;
        if (this.#status === 'starting') this.#status = 'dead';
        else this.#down('dead', reason);
      },
    };
    this.#sentPlans.forget();
    const started = new Remote<GpuApi>(options);
    return started;
  }

  #down(status: GpuProcessStatus, reason: string): void {
    const isNews = this.#status === 'up';
    this.#status = status;
    if (isNews) for (const listener of this.#listeners) listener(reason);
  }

  async #open(): Promise<GpuProcessInfo> {
    const opened = this.#process;
    const answer = await opened.call('open', this.#settings);
    opened.watch(this.#options.silenceMsMax ?? silenceMsMax);
    if (this.#process === opened) this.#status = 'up';
    return answer;
  }
}

function refuseCancelled(signal: CancelSignal | undefined): void {
  if (signal?.aborted === true) throw new GpuError('cancelled', 'the run was cancelled by its caller');
}

/** Starts the GPU process. `ready` of the result tells when, and whether, it is up. */
export function startGpuProcess(options: GpuProcessOptions): GpuClient {
  const client = new GpuClient(options);
  client.ready.catch(() => undefined);
  return client;
}
