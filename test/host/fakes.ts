/** Fakes for the host's parts: a store and pools in memory, and a server over them on a free port. */
import { createHash } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { pino, type Logger } from 'pino';
import {
  CpuError,
  type CpuPools,
  type InvokeOptions,
  type PoolConfiguration,
  type PoolInput,
  type PoolResult,
} from '../../src/cpu/index.ts';
import type { HostConfig } from '../../src/host/config.ts';
import { HostError } from '../../src/host/errors.ts';
import { SchedulerView } from '../../src/host/gpu/index.ts';
import { History, Usage } from '../../src/host/history/index.ts';
import { Access } from '../../src/host/access.ts';
import { createHttpServer, readTls, type HttpServer } from '../../src/host/http/index.ts';
import { FunctionLog } from '../../src/host/function-log.ts';
import { Logging } from '../../src/host/logger.ts';
import { otherFunctions } from '../../src/host/invoke-others.ts';
import { Invoker, type InvokerOptions } from '../../src/host/invoke.ts';
import { LiveScheduler } from '../../src/host/live/index.ts';
import { createMetrics } from '../../src/host/metrics.ts';
import { Rollout } from '../../src/host/rollout.ts';
import { Shadows } from '../../src/host/shadows.ts';
import { Statistics } from '../../src/host/statistics.ts';
import type { Traffic } from '../../src/host/traffic.ts';
import type {
  FunctionVersion,
  ModelMetadata,
  ModelStore,
  Publication,
  RegistryChange,
  TensorSpec,
} from '../../src/host/types.ts';
import { policies } from '../../src/schedule/index.ts';
import type { DataType, Tensor } from '../../src/tensor/index.ts';

export function spec(name: string, datatype: DataType, shape: readonly (number | string)[]): TensorSpec {
  return {
    name,
    datatype,
    shape: shape.map((size) => (typeof size === 'number' ? size : -1)),
    dimensionNames: shape.map((size) => (typeof size === 'number' || size === '?' ? undefined : size)),
  };
}

export function metadata(inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]): ModelMetadata {
  return { inputs, outputs, opset: 17, producer: 'test', nodeCount: 1, parameterCount: 4, weightBytes: 16 };
}

/** x: FP32 [batch, 2] to y: FP32 [batch, 2]. */
export const pairModel = metadata([spec('x', 'FP32', ['batch', 2])], [spec('y', 'FP32', ['batch', 2])]);

export function functionVersion(name: string, changes: Partial<FunctionVersion> = {}): FunctionVersion {
  const version = changes.version ?? '1';
  return {
    name,
    version,
    key: `${name}@${version}`,
    source: 'upload',
    settings: {
      description: 'a function of the tests',
      model: 'model.onnx',
      sloMs: 100,
      handler: undefined,
      batching: { batchMax: 4, delayMs: 2 },
      pinned: false,
      priority: 100,
      admission: undefined,
      isolation: 'shared',
      cpu: { instancesMax: undefined, threads: undefined },
      timeouts: { handlerMs: 1000, loadMs: 1000, inferMs: 1000 },
    },
    modelPath: '/nowhere/model.onnx',
    modelSha256: 'ab'.repeat(32),
    modelBytes: 1000,
    handlerPath: undefined,
    publishedAtMs: 1_700_000_000_000,
    metadata: pairModel,
    state: { status: 'ready' },
    ...changes,
  };
}

/** A store in memory that follows the docstrings of ModelStore. */
export class FakeStore implements ModelStore {
  readonly #versions = new Map<string, FunctionVersion[]>();
  readonly #listeners: ((change: RegistryChange) => void)[] = [];
  readonly blobs = new Map<string, Buffer>();
  readonly reloads: string[] = [];
  /** What each publication received. */
  readonly uploads: { files: Map<string, Buffer>; settings: unknown; aborted: boolean }[] = [];
  /** The next commit throws this. */
  refusal: HostError | undefined;

  put(version: FunctionVersion): void {
    const list = this.#versions.get(version.name) ?? [];
    const at = list.findIndex(({ key }) => key === version.key);
    const before = at === -1 ? undefined : list[at];
    if (at === -1) list.push(version);
    else list[at] = version;
    this.#versions.set(version.name, list);
    for (const listener of this.#listeners) listener({ before, after: version });
  }

  names(): readonly string[] {
    return [...this.#versions.keys()];
  }

  versions(name: string): readonly FunctionVersion[] {
    return this.#versions.get(name) ?? [];
  }

  find(name: string, version?: string): FunctionVersion | undefined {
    const list = this.versions(name);
    return version === undefined ? list.at(-1) : list.find((each) => each.version === version);
  }

  learn(): undefined {
    return undefined;
  }

  choose(name: string): FunctionVersion | undefined {
    return this.find(name);
  }

  traffic(): undefined {
    return undefined;
  }

  async changeSettings(): Promise<void> {
    throw new Error('this store changes no settings');
  }

  async changeTraffic(): Promise<Traffic> {
    throw new Error('this store divides no traffic');
  }

  onChange(listener: (change: RegistryChange) => void): void {
    this.#listeners.push(listener);
  }

  async start(): Promise<void> {}

  hurry(): void {}

  async beginPublish(name: string, version: string | undefined): Promise<Publication> {
    if (name === 'busy') throw new HostError('publish-in-progress', 'another upload is under way');
    const upload = { files: new Map<string, Buffer>(), settings: undefined as unknown, aborted: false };
    this.uploads.push(upload);
    return {
      writeFile: async (filename, stream) => {
        const chunks: Uint8Array[] = [];
        for await (const chunk of stream) chunks.push(chunk);
        upload.files.set(filename, Buffer.concat(chunks));
      },
      useBlob: async (filename, sha256) => {
        const blob = this.blobs.get(sha256);
        if (blob === undefined) throw new HostError('unknown-blob', 'no blob with this sha256 is stored');
        upload.files.set(filename, blob);
      },
      commit: async (settings) => {
        upload.settings = settings;
        if (this.refusal !== undefined) throw this.refusal;
        const model = upload.files.get('model.onnx');
        if (model === undefined) throw new HostError('bad-request', "the upload brings no 'model.onnx'");
        const modelSha256 = sha256Of(model);
        const known = this.versions(name).find((each) => each.modelSha256 === modelSha256);
        if (known !== undefined) return { version: known, created: false };
        const number = version ?? String(this.versions(name).length + 1);
        const made = functionVersion(name, { version: number, modelSha256, modelBytes: model.byteLength });
        this.put(made);
        return { version: made, created: true };
      },
      abort: async () => {
        upload.aborted = true;
      },
    };
  }

  async remove(name: string, version: string | undefined): Promise<void> {
    const list = this.versions(name);
    if (list.length === 0) throw new HostError('unknown-function', `there is no function '${name}'`);
    const gone = version === undefined ? list : list.filter((each) => each.version === version);
    const kept = list.filter((each) => !gone.includes(each));
    if (kept.length === 0) this.#versions.delete(name);
    else this.#versions.set(name, kept);
    for (const before of gone) for (const listener of this.#listeners) listener({ before, after: undefined });
  }

  async reload(name: string): Promise<void> {
    this.reloads.push(name);
  }

  soundFile(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  hasBlob(sha256: string): boolean {
    return this.blobs.has(sha256);
  }

  async putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    if (sha256Of(bytes) !== sha256) throw new HostError('digest-mismatch', 'the bytes have another sha256');
    this.blobs.set(sha256, bytes);
  }
}

export function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

export interface FakeInvocation {
  readonly key: string;
  readonly input: PoolInput;
  readonly options: InvokeOptions;
}

/** Pools that answer with `answer`; by default the inputs come back as outputs, renamed x to y. */
export class FakePools implements CpuPools {
  readonly invocations: FakeInvocation[] = [];
  readonly loads: string[] = [];
  readonly unloads: string[] = [];
  answer: (invocation: FakeInvocation) => Partial<PoolResult> | Promise<Partial<PoolResult>> = echo;

  observe(): void {}
  async started(): Promise<void> {}
  register(): void {}
  async unregister(): Promise<void> {}

  async invoke(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<PoolResult> {
    const invocation = { key, input, options };
    this.invocations.push(invocation);
    const partial = await this.answer(invocation);
    return {
      output: { kind: 'tensors', tensors: [] },
      timings: { queueMs: 1, loadMs: 0, preprocessMs: 0.1, inferMs: 2, postprocessMs: 0.2 },
      coldStart: false,
      batchSize: 1,
      instancePid: 1,
      ...partial,
    };
  }

  async load(key: string): Promise<void> {
    this.loads.push(key);
  }

  async unload(key: string): Promise<void> {
    this.unloads.push(key);
  }

  async configure(_key: string, configuration: PoolConfiguration | undefined): ReturnType<CpuPools['configure']> {
    return { state: 'done', kind: 'switch', ms: 0, configuration };
  }

  leaseCores(): ReturnType<CpuPools['leaseCores']> {
    return { cores: [], [Symbol.dispose]: () => undefined };
  }

  coresFor(): ReturnType<CpuPools['coresFor']> {
    return { cores: 1, perSocket: [1] };
  }

  async evict(key: string): Promise<boolean> {
    this.unloads.push(key);
    return true;
  }

  state(key: string): ReturnType<CpuPools['state']> {
    return this.states().find((state) => state.key === key);
  }

  states(): ReturnType<CpuPools['states']> {
    return this.loads.map((key) => ({
      key,
      instances: [{ pid: 1, state: 'idle' as const, idleForMs: 0, threads: 1, cores: [] }],
      queueLength: 3,
      inFlight: 0,
      configuration: undefined,
      starting: undefined,
      coresHeld: 0,
      arrivalsPerSecond: 0,
      queueDepth: 3,
      startMs: undefined,
    }));
  }

  resources(): ReturnType<CpuPools['resources']> {
    return { memoryBytes: 1e9, memoryUsedBytes: 0, cores: 1, coresShared: 1 };
  }

  async stop(): Promise<void> {}
}

export function echo({ input }: FakeInvocation): Partial<PoolResult> {
  if (input.kind === 'request') {
    const { method, url, body } = input.request;
    return {
      output: {
        kind: 'response',
        response: {
          status: 200,
          headers: { 'content-type': 'text/plain' },
          body: Buffer.concat([Buffer.from(`${method} ${url} `), body]),
        },
      },
    };
  }
  const tensors = input.tensors.map((tensor): Tensor => ({ ...tensor, name: tensor.name === 'x' ? 'y' : tensor.name }));
  return { output: { kind: 'tensors', tensors } };
}

/** A promise and the function that resolves it. */
export function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

export interface Held {
  readonly answer: FakePools['answer'];
  readonly release: () => void;
  /** Resolves when an invocation has come. */
  readonly started: Promise<void>;
  readonly ended: Promise<'aborted' | 'released'>;
}

/** An answer that does not come until the invocation is aborted or `release` is called. */
export function held(): Held {
  const started = deferred<void>();
  const ended = deferred<'aborted' | 'released'>();
  const gate = deferred<void>();
  return {
    started: started.promise,
    ended: ended.promise,
    release: gate.resolve,
    answer: async (invocation) => {
      started.resolve();
      const { signal } = invocation.options;
      const aborted = deferred<void>();
      signal?.addEventListener('abort', () => aborted.resolve(), { once: true });
      await Promise.race([gate.promise, aborted.promise]);
      ended.resolve(signal?.aborted ? 'aborted' : 'released');
      if (signal?.aborted) throw new CpuError('cancelled', 'the client is gone');
      return echo(invocation);
    },
  };
}

export const testConfig: HostConfig = {
  listen: { host: '127.0.0.1', port: 0, tls: { certFile: undefined, keyFile: undefined } },
  grpc: { port: 'off', isAuto: true },
  dataDir: '/nowhere',
  dataDirBefore: undefined,
  healFrom: { hostUrls: [], apiKey: undefined },
  functionsDir: '/nowhere',
  apiKeys: [],
  apiKeysFor: ['publish'],
  rate: { perKey: 0, perAddress: 0 },
  cors: { origins: [] },
  unloaded: 'until-call',
  cpu: {
    cores: 1,
    blankInstances: 0,
    memoryBytes: 1e9,
    modelNetwork: 'on',
    threads: 1,
    idleMs: 1000,
    queueMax: 10,
    profiling: 'off',
    profilingBudgetMs: 0,
    configure: 'off',
    objective: 'latency',
    reconfigureIntervalMs: 10_000,
  },
  admission: 'best-effort',
  gpu: {
    use: 'off',
    hostBytes: undefined,
    gpuBytes: undefined,
    mode: 'interleave',
    policy: 'best',
    topology: undefined,
    policyParts: {},
    profileIterations: 1,
    recheckEvery: 0,
    precision: 'exact',
    hybrid: 'memory',
    hybridCores: 0,
  },
  limits: {
    bodyBytesMax: 200_000,
    replyBytesMax: 2_000_000,
    inFlightBytesMax: 4_000_000,
    uploadBytesMax: 400_000,
    bodyTimeoutMs: 30_000,
    requestsInFlightMax: 50,
  },
  redis: { url: undefined, prefix: 'test' },
  queue: { payloadBytesMax: 100_000, outstandingMax: 10, hostUrl: undefined },
  fleet: {
    name: undefined,
    secret: undefined,
    secretFile: undefined,
    advertise: undefined,
    caFile: undefined,
    cacheBytes: undefined,
    bucket: undefined,
    bucketRegion: 'us-east-1',
    protocol: undefined,
  },
  async: {
    keepMs: 60_000,
    waitingMax: 100,
    concurrency: 2,
    callbackAttempts: 3,
    callbackBackoffMs: 10,
    callbackTimeoutMs: 1000,
    callbackAllow: ['127.0.0.1'],
    callbackSecret: undefined,
  },
  validator: { timeoutMs: 1000 },
  drainMs: 1000,
  log: { level: 'silent', format: 'json' },
  defaults: { sloMs: 100, handlerMs: 1000, loadMs: 1000, inferMs: 1000 },
};

export interface TestHost extends AsyncDisposable {
  readonly server: HttpServer;
  readonly url: string;
  readonly store: FakeStore;
  readonly pools: FakePools;
  readonly statistics: Statistics;
  readonly history: History;
  readonly lifecycle: { phase: 'starting' | 'ready' | 'draining' };
  /** Parsed log lines. */
  readonly log: Record<string, unknown>[];
}

export interface TestHostOptions {
  readonly config?: Partial<Omit<HostConfig, 'limits'>> & { limits?: Partial<HostConfig['limits']> };
  readonly readyWaitMs?: number;
  /** Other hosts of a fleet. */
  readonly routing?: ReturnType<NonNullable<InvokerOptions['routing']>>;
  readonly logLevel?: HostConfig['log']['level'];
}

export async function startTestHost(options: TestHostOptions = {}): Promise<TestHost> {
  const store = new FakeStore();
  const pools = new FakePools();
  const statistics = new Statistics();
  const lifecycle: TestHost['lifecycle'] = { phase: 'ready' };
  const log: Record<string, unknown>[] = [];
  const logger: Logger = pino(
    { level: options.logLevel ?? 'debug' },
    { write: (line: string) => log.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const config = { ...testConfig, ...options.config, limits: { ...testConfig.limits, ...options.config?.limits } };
  const history = new History();
  statistics.onRefused = (functionName) => history.refused(functionName);
  statistics.onFailed = (failure) => history.errors.add(failure, Date.now());
  const live = new LiveScheduler({
    policy: policies.best,
    cpu: { cores: 64, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: undefined, cores: 1 }),
    waitingMax: config.cpu.queueMax,
  });
  const invoker: Invoker = new Invoker({
    registry: store,
    invokeOthers: (version, asking) => others(version, asking),
    pools,
    live,
    statistics,
    readyWaitMs: options.readyWaitMs ?? 1000,
    routing: options.routing === undefined ? undefined : () => options.routing,
    recorder: history,
  });
  const others = otherFunctions(invoker, store);
  const metrics = createMetrics({
    registry: store,
    pools,
    statistics,
    memoryBytes: 1e9,
    threadsOf: () => 2,
    batchMaxOf: ({ settings }) => settings.batching.batchMax,
  });
  store.put(functionVersion('pair'));
  const usage = new Usage(() => ({ waiting: 0, inFlight: 0, atWorkers: 0, gpus: [], linkBytes: [] }));
  const server = await createHttpServer({
    tls: await readTls(config),
    config,
    access: new Access(config),
    store,
    pools,
    statistics,
    lifecycle,
    logger,
    logging: new Logging(logger),
    invoker,
    rollout: new Rollout({ store, invoker, eventLog: history.eventLog, logger }),
    shadows: new Shadows({ store, run: async (version, input) => await invoker.tryOut(version, input) }),
    metrics,
    hostVersion: '0.0.0',
    functionLog: new FunctionLog(),
    views: {
      registry: store,
      pools,
      statistics,
      history,
      totalMemoryBytes: 1e9,
      usage,
      workers: () => [],
      redis: () => 'off',
    },
    scheduler: new SchedulerView({
      live,
      gpus: undefined,
      registry: store,
      mode: 'interleave',
      policy: 'best',
      policyParts: policies.best,
      cpuCores: 2,
      cpuOffer: () => ({ latencyMs: 7, cores: 1 }),
    }),
  });
  return {
    server,
    url: server.url,
    store,
    pools,
    statistics,
    history,
    lifecycle,
    log,
    [Symbol.asyncDispose]: async () => {
      await server.close(0);
      metrics.close();
    },
  };
}

/** A TCP connection that keeps everything it receives. */
export class RawClient {
  readonly socket: Socket;
  received = '';
  readonly closed: Promise<void>;
  #waiting: (() => void)[] = [];

  constructor(port: number) {
    this.socket = connect(port, '127.0.0.1');
    this.socket.on('data', (chunk) => {
      this.received += chunk.toString('latin1');
      for (const wake of this.#waiting.splice(0)) wake();
    });
    this.socket.on('error', () => undefined);
    this.closed = new Promise((resolve) => {
      this.socket.on('close', () => {
        for (const wake of this.#waiting.splice(0)) wake();
        resolve();
      });
    });
  }

  write(text: string | Uint8Array): this {
    this.socket.write(text);
    return this;
  }

  /** Resolves once `pattern` was received; throws if the connection closes before. */
  async until(pattern: RegExp): Promise<string> {
    while (!pattern.test(this.received)) {
      if (this.socket.destroyed) throw new Error(`closed before ${String(pattern)}; received ${this.received}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return this.received;
  }

  /** Everything received when the host closed the connection. */
  async toEnd(): Promise<string> {
    await this.closed;
    return this.received;
  }
}

/** A request for `pair`, which the fakes answer with its input. */
export const inferBody = { inputs: [{ name: 'x', shape: [1, 2], datatype: 'FP32', data: [1, 2] }] };

/** Strings and bytes are sent unchanged, anything else as JSON. */
export function postTo(
  host: TestHost,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Response> {
  const raw = typeof body === 'string' || body instanceof Uint8Array;
  return fetch(host.url + path, { method: 'POST', body: raw ? (body as string) : JSON.stringify(body), headers });
}

/** The parts of a failure. Throws if the reply does not have the form of a failure. */
export async function errorOf(reply: Response): Promise<{ status: number; code: string | null; error: string }> {
  const body = (await reply.json()) as Record<string, unknown>;
  const { error } = body;
  if (
    typeof error !== 'string' ||
    Object.keys(body).length !== 1 ||
    reply.headers.get('content-type') !== 'application/json'
  ) {
    throw new Error(`not in the form of a failure: ${reply.status} ${JSON.stringify(body)}`);
  }
  return { status: reply.status, code: reply.headers.get('x-turntable-error'), error };
}
