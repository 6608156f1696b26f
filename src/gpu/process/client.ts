/** The host's side of the GPU process. */
import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { ColdStartPlan } from '../../plan/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { encodeMessage, FrameDecoder, type Message, type Tensor } from '../../tensor/index.ts';
import type { HybridPlan, HybridPromise } from '../hybrid/types.ts';
import type { MeasuredTopology } from '../measure/topology-types.ts';
import { GpuError, type HostTier, type RunResult } from '../types.ts';
import type {
  FromGpuProcess,
  GpuAnswers,
  GpuCoverage,
  GpuFunctionSpec,
  GpuProcessInfo,
  GpuProcessSettings,
  GpuProcessState,
  GpuRequest,
  MeasuredLayerProfile,
  MeasureOperatorsOptions,
  MeasureOptions,
  ToGpuProcess,
} from './protocol.ts';

/** From src/ (tests, tsx) the process runs the compiled file all the same: Node 20 cannot run TypeScript. */
const processPath = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../../dist/gpu/process/main.js' : './main.js', import.meta.url),
);

/** How long the end of a process may lag behind the end of its socket. */
const exitWaitMs = 100;

/** A process whose thread stands still for so long hangs: pinning a slab, the longest of its calls, takes a fraction of a second. */
const silenceMsMax = 10_000;
/** How often it is asked within that time. */
const beats = 10;

/** Reads of files, compilation and waiting for GPUs share the threads of libuv, of which there are four by default. */
const threadPoolSize = '16';

export interface GpuProcessOptions extends GpuProcessSettings {
  /** Lines that the process writes. Default: standard error. */
  readonly log?: (line: string) => void;
  /** A process that answers nothing for so long is ended as one that hangs. Default: ten seconds. */
  readonly silenceMsMax?: number;
  /** Added to this process's environment: where the driver's libraries are. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface GpuRunOptions {
  readonly gpu: number;
  readonly plan: ColdStartPlan;
  /** One of the function's plans over GPU and CPU; all of it on the GPU when left out. */
  readonly rung?: string;
  readonly trace?: boolean;
  readonly signal?: AbortSignal;
}

export interface GpuLoadOptions {
  readonly gpu: number;
  readonly plan: ColdStartPlan;
  /** How many of the layers that the plan loads, from the first on; all when left out. */
  readonly prefix?: number;
  readonly signal?: AbortSignal;
}

/** Outputs of each request of a shared run. */
export type GpuBatchResult = Omit<RunResult, 'outputs'> & { readonly outputs: readonly (readonly Tensor[])[] };

/** `up`: it answers. `broken`: it lives, but its context is poisoned or a device is lost; only a restart helps. */
export type GpuProcessStatus = 'starting' | 'up' | 'broken' | 'dead' | 'stopped';

interface Task {
  readonly resolve: (answer: { readonly answer: unknown; readonly tensors: readonly Tensor[] }) => void;
  readonly reject: (error: GpuError) => void;
}

type Answer<Op extends keyof GpuAnswers> = { readonly answer: GpuAnswers[Op]; readonly tensors: readonly Tensor[] };

/** One life of the process. */
class Connection {
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  readonly #decoder = new FrameDecoder<FromGpuProcess>();
  readonly #tasks = new Map<number, Task>();
  readonly #onDead: (reason: string) => void;
  readonly #onBroken: (error: GpuError) => void;
  readonly ended: Promise<void>;
  #next = 0;
  #deadReason: string | undefined;
  #heart: NodeJS.Timeout | undefined;
  #silentBeats = 0;

  constructor(options: GpuProcessOptions, onDead: (reason: string) => void, onBroken: (error: GpuError) => void) {
    this.#onDead = onDead;
    this.#onBroken = onBroken;
    this.#child = spawn(process.execPath, [processPath], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      env: { UV_THREADPOOL_SIZE: threadPoolSize, ...process.env, ...options.environment },
    });
    this.#socket = this.#child.stdio[3] as Socket;
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    // The end of the process, which tells why, is often known a moment after the end of its socket.
    this.#socket.on('error', () => setTimeout(() => this.end('its socket failed'), exitWaitMs));
    const log = options.log ?? ((line: string): boolean => process.stderr.write(`${line}\n`));
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      let rest = '';
      stream?.setEncoding('utf8').on('data', (text: string) => {
        const lines = (rest + text).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) log(line);
      });
    }
    this.ended = new Promise((resolve) => {
      this.#child.on('error', (error) => {
        this.end(`it could not be started: ${error.message}`);
        resolve();
      });
      this.#child.on('exit', (code, signal) => {
        this.end(signal === null ? `it exited with code ${String(code)}` : `it was ended by ${signal}`);
        resolve();
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  request<Op extends keyof GpuAnswers>(
    request: GpuRequest & { op: Op },
    tensors: readonly Tensor[] = [],
    signal?: AbortSignal,
  ): Promise<Answer<Op>> {
    if (this.#deadReason !== undefined) return Promise.reject(died(this.#deadReason));
    if (signal?.aborted === true)
      return Promise.reject(new GpuError('cancelled', 'the run was cancelled by its caller'));
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      const abort = (): void => this.#send({ id, cancel: true });
      const over = (): void => signal?.removeEventListener('abort', abort);
      this.#tasks.set(id, {
        resolve: (answer) => {
          over();
          resolve(answer as Answer<Op>);
        },
        reject: (error) => {
          over();
          reject(error);
        },
      });
      signal?.addEventListener('abort', abort, { once: true });
      this.#send({ id, request }, tensors);
    });
  }

  /**
   * Asks it now and then whether it still listens, and ends it when it has answered nothing for so long. Beats are counted, not
   * time: what this process itself slept through is not held against the other one.
   */
  watch(silenceMs: number): void {
    if (this.#deadReason !== undefined) return;
    let isAsked = false;
    this.#silentBeats = 0;
    this.#heart = setInterval(() => {
      if (++this.#silentBeats > beats) {
        this.end(`it has not answered for ${silenceMs / 1000} s`);
        return;
      }
      if (isAsked) return;
      isAsked = true;
      this.request({ op: 'ping' }).then(
        () => (isAsked = false),
        () => undefined,
      );
    }, silenceMs / beats);
    this.#heart.unref();
  }

  /** Ends the process at once; what is in flight is rejected. */
  end(reason: string): void {
    if (this.#deadReason !== undefined) return;
    this.#deadReason = reason;
    clearInterval(this.#heart);
    this.#socket.destroy();
    // In the middle of a call of the driver it does not look at its socket.
    this.#child.kill('SIGKILL');
    const tasks = [...this.#tasks.values()];
    this.#tasks.clear();
    for (const task of tasks) task.reject(died(reason));
    this.#onDead(reason);
  }

  #send(header: ToGpuProcess, tensors: readonly Tensor[] = []): void {
    const buffers = encodeMessage({ header, tensors });
    this.#socket.cork();
    for (const buffer of buffers) this.#socket.write(buffer);
    this.#socket.uncork();
  }

  #receive(chunk: Buffer): void {
    this.#silentBeats = 0;
    let messages: Message<FromGpuProcess>[];
    try {
      messages = this.#decoder.push(chunk);
    } catch (error) {
      this.end(`it sent something unreadable: ${error instanceof Error ? error.message : String(error)}`);
      return;
    }
    for (const { header, tensors } of messages) {
      const task = this.#tasks.get(header.id);
      this.#tasks.delete(header.id);
      if (header.ok) {
        task?.resolve({ answer: header.answer, tensors });
        continue;
      }
      const error = new GpuError(header.code, header.message);
      if (error.code === 'poisoned' || error.code === 'device-lost') this.#onBroken(error);
      task?.reject(error);
    }
  }
}

const died = (reason: string): GpuError => new GpuError('died', `the GPU process died: ${reason}`);

/**
 * The GPU process as the host uses it. All methods reject with {@link GpuError}; `died` and the codes that break a process mean
 * that nothing was answered, so that an invocation can be tried elsewhere.
 */
export class GpuClient {
  readonly #options: GpuProcessOptions;
  readonly #settings: GpuProcessSettings;
  readonly #specs = new Map<string, GpuFunctionSpec>();
  /** By function and name. */
  readonly #plans = new Map<string, Map<string, HybridPlan>>();
  readonly #listeners: ((reason: string) => void)[] = [];
  #connection: Connection;
  #status: GpuProcessStatus = 'starting';
  #ready: Promise<GpuProcessInfo>;

  constructor(options: GpuProcessOptions) {
    const { log: _log, environment: _environment, silenceMsMax: _silenceMsMax, ...settings } = options;
    this.#options = options;
    this.#settings = settings;
    this.#connection = this.#connect();
    this.#ready = this.#open();
  }

  /** Resolves with what the process found. Rejects when there is no GPU, or no memory for the engine. */
  get ready(): Promise<GpuProcessInfo> {
    return this.#ready;
  }

  get status(): GpuProcessStatus {
    return this.#status;
  }

  get pid(): number {
    return this.#connection.pid;
  }

  /** Called when the process has died or broken, with the reason; not after `stop`. */
  onDown(listener: (reason: string) => void): void {
    this.#listeners.push(listener);
  }

  /** Makes a function known: compiles it for its shapes, or says which operators are in the way. */
  async register(spec: GpuFunctionSpec): Promise<GpuCoverage> {
    await this.#ready;
    const { answer } = await this.#connection.request({ op: 'register', spec });
    if (answer.covered || answer.layers !== undefined) this.#specs.set(spec.key, spec);
    return answer;
  }

  async unregister(key: string): Promise<void> {
    this.#specs.delete(key);
    this.#plans.delete(key);
    await this.#connection.request({ op: 'unregister', key });
  }

  /** Runs a function. */
  async run(key: string, inputs: readonly Tensor[], options: GpuRunOptions): Promise<RunResult> {
    const { outputs, ...result } = await this.runBatch(key, [inputs], options);
    return { ...result, outputs: outputs[0] ?? [] };
  }

  /** Runs a function once for several requests, joined along the first dimension of its inputs. */
  async runBatch(
    key: string,
    requests: readonly (readonly Tensor[])[],
    { gpu, plan, rung, trace = false, signal }: GpuRunOptions,
  ): Promise<GpuBatchResult> {
    const counts = requests.map(({ length }) => length);
    const { answer, tensors } = await this.#connection.request(
      { op: 'run', key, gpu, plan, trace, counts, ...(rung === undefined ? {} : { rung }) },
      requests.flat(),
      signal,
    );
    let at = 0;
    const { counts: outputCounts, ...result } = answer;
    return { ...result, outputs: outputCounts.map((count) => tensors.slice(at, (at += count))) };
  }

  /** Brings weights to a GPU without executing. Resolves with the bytes brought. */
  async load(key: string, { gpu, plan, prefix, signal }: GpuLoadOptions): Promise<number> {
    const request = { op: 'load', key, gpu, plan, ...(prefix === undefined ? {} : { prefix }) } as const;
    return (await this.#connection.request(request, [], signal)).answer.loadedBytes;
  }

  /** Keeps the first `layers` of the layers on a GPU. Resolves with the bytes given back. */
  async trim(key: string, gpu: number, layers: number): Promise<number> {
    return (await this.#connection.request({ op: 'trim', key, gpu, layers })).answer.freedBytes;
  }

  /** Gives back the layers that a plan of the function does not read. Resolves with the bytes given back. */
  async keep(key: string, gpu: number, rung: string): Promise<number> {
    return (await this.#connection.request({ op: 'keep', key, gpu, rung })).answer.freedBytes;
  }

  /** Adds a plan over GPU and CPU, or replaces the one of this name. Resolves with what it takes. */
  async addPlan(key: string, plan: HybridPlan): Promise<HybridPromise> {
    const { answer } = await this.#connection.request({ op: 'add-plan', key, plan });
    const plans = this.#plans.get(key) ?? new Map<string, HybridPlan>();
    this.#plans.set(key, plans.set(plan.id, plan));
    return answer;
  }

  async dropPlan(key: string, plan: string): Promise<void> {
    this.#plans.get(key)?.delete(plan);
    await this.#connection.request({ op: 'drop-plan', key, plan });
  }

  /** Times each operator on the GPU and on cores. Nothing else should run meanwhile. */
  async measureOperators(key: string, options: MeasureOperatorsOptions): Promise<GraphProfile> {
    return (await this.#connection.request({ op: 'operators', key, options })).answer;
  }

  evict(key: string, gpu: number): Promise<number> {
    return this.trim(key, gpu, 0);
  }

  /** Has the weights read from disk into pinned memory. */
  async prefetch(key: string, signal?: AbortSignal): Promise<void> {
    await this.#connection.request({ op: 'prefetch', key }, [], signal);
  }

  async hostTier(key: string): Promise<HostTier> {
    return (await this.#connection.request({ op: 'tier', key })).answer;
  }

  async state(): Promise<GpuProcessState> {
    return (await this.#connection.request({ op: 'state' })).answer;
  }

  /** Times each layer. Nothing else should run on that GPU meanwhile. */
  async measure(key: string, options: MeasureOptions): Promise<MeasuredLayerProfile> {
    return (await this.#connection.request({ op: 'measure', key, options })).answer;
  }

  async topology(copyBytes?: number): Promise<MeasuredTopology> {
    const request = { op: 'topology', ...(copyBytes === undefined ? {} : { bytes: copyBytes }) } as const;
    return (await this.#connection.request(request)).answer;
  }

  /** A new process, with the functions that were registered; all of them are cold. What is in flight is rejected. */
  async restart(): Promise<GpuProcessInfo> {
    const info = await this.reopen();
    for (const key of this.#specs.keys()) await this.registerAgain(key);
    return info;
  }

  /** A new process that knows no function: {@link registerAgain} brings each back. What is in flight is rejected. */
  async reopen(): Promise<GpuProcessInfo> {
    this.#status = 'stopped';
    const old = this.#connection;
    old.end('it is restarted');
    await old.ended;
    this.#status = 'starting';
    this.#connection = this.#connect();
    this.#ready = this.#open();
    return await this.#ready;
  }

  /** A function that an earlier process had, with its plans; nothing where it was not registered. */
  async registerAgain(key: string): Promise<void> {
    const spec = this.#specs.get(key);
    if (spec === undefined) return;
    await this.#connection.request({ op: 'register', spec });
    for (const plan of this.#plans.get(key)?.values() ?? []) {
      await this.#connection.request({ op: 'add-plan', key, plan });
    }
  }

  /** Ends the process at once, as if it had died: what is in flight is rejected, and whoever listens is told. */
  kill(reason: string): void {
    this.#connection.end(reason);
  }

  /** Gives everything back and ends the process. */
  async stop(): Promise<void> {
    const connection = this.#connection;
    if (this.#status === 'up') {
      try {
        await connection.request({ op: 'close' });
      } catch {
        // It ends in any case.
      }
    }
    this.#status = 'stopped';
    connection.end('it was stopped');
    await connection.ended;
  }

  #connect(): Connection {
    const connection: Connection = new Connection(
      this.#options,
      (reason) => {
        if (connection === this.#connection && this.#status !== 'stopped' && this.#status !== 'starting') {
          this.#down('dead', reason);
        } else if (this.#status === 'starting' && connection === this.#connection) this.#status = 'dead';
      },
      (error) => {
        if (connection === this.#connection && this.#status === 'up') this.#down('broken', error.message);
      },
    );
    return connection;
  }

  #down(status: GpuProcessStatus, reason: string): void {
    const isNews = this.#status === 'up';
    this.#status = status;
    if (isNews) for (const listener of this.#listeners) listener(reason);
  }

  async #open(): Promise<GpuProcessInfo> {
    const connection = this.#connection;
    const { answer } = await connection.request({ op: 'open', settings: this.#settings });
    connection.watch(this.#options.silenceMsMax ?? silenceMsMax);
    if (this.#connection === connection) this.#status = 'up';
    return answer;
  }
}

/** Starts the GPU process. `ready` of what is returned tells when, and whether, it is. */
export function startGpuProcess(options: GpuProcessOptions): GpuClient {
  const client = new GpuClient(options);
  client.ready.catch(() => undefined);
  return client;
}
