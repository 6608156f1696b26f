/** The host's HTTP server over a store and pools in memory, on a free port, and calls to it. */
import { pino, type Logger } from 'pino';
import type { HostConfig } from '../../src/host/config/config.ts';
import { SchedulerView } from '../../src/host/gpu/index.ts';
import { History, Usage } from '../../src/host/history/index.ts';
import { certificateFilesOf } from '../../src/host/config/certificate-files.ts';
import { Access } from '../../src/host/access/access.ts';
import { createHttpServer, type HttpServer } from '../../src/host/http/index.ts';
import { FunctionLog } from '../../src/host/records/function-log.ts';
import { Logging } from '../../src/host/records/logger.ts';
import { Connections } from '../../src/host/limits/connections.ts';
import { InFlightBytes } from '../../src/host/limits/in-flight.ts';
import { otherFunctions } from '../../src/host/calls/invoke-others.ts';
import { Invoker, type InvokerOptions } from '../../src/host/calls/invoke.ts';
import { LiveScheduler } from '../../src/live/index.ts';
import { createMetrics } from '../../src/host/metrics/metrics.ts';
import type { InvocationRecorder } from '../../src/host/calls/placement.ts';
import { Rollout } from '../../src/host/rollout/rollout.ts';
import { Statistics } from '../../src/host/records/statistics.ts';
import { divideMemory } from '../../src/hardware/index.ts';
import { policies } from '../../src/schedule/index.ts';
import { waitLimitMs } from '../time-limits.ts';
import { FakePools } from './fake-pools.ts';
import { FakeStore, functionVersion } from './fake-store.ts';

export const testConfig: HostConfig = {
  listen: { host: '127.0.0.1', port: 0, tls: { certFile: undefined, keyFile: undefined } },
  grpc: { port: 'off', isAuto: true },
  dataDir: '/nowhere',
  dataDirBefore: undefined,
  store: { place: undefined, cacheBytes: undefined },
  functionsDir: '/nowhere',
  apiKeys: [],
  apiKeysFor: ['publish'],
  rate: { perKey: 0, perAddress: 0 },
  trustedProxies: [],
  cors: { origins: [] },
  unloaded: 'until-call',
  memory: divideMemory(8e9, 'host'),
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
    hostBytes: 0,
    gpuBytes: undefined,
    mode: 'interleave',
    policy: 'best',
    topology: undefined,
    policyParts: {},
    profileIterations: 1,
    recheckEvery: 0,
    coding: 'off',
    precision: 'exact',
    hybrid: 'memory',
    hybridCores: 0,
    without: [],
  },
  limits: {
    bodyBytesMax: 200_000,
    replyBytesMax: 2_000_000,
    inFlightBytesMax: 4_000_000,
    uploadBytesMax: 400_000,
    bodyTimeoutMs: waitLimitMs,
    requestsInFlightMax: 50,
    connectionsMax: 10_000,
  },
  redis: { url: undefined, prefix: 'test' },
  queue: { payloadBytesMax: 100_000, outstandingMax: 10 },
  fleet: {
    name: undefined,
    port: 0,
    advertise: undefined,
    tls: { certFile: undefined, keyFile: undefined, caFile: undefined, name: undefined },
  },
  async: {
    keepMs: 3_600_000,
    waitingMax: 100,
    concurrency: 2,
    callbackAttempts: 3,
    callbackBackoffMs: 10,
    callbackTimeoutMs: waitLimitMs,
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
  const history = new History();
  const statistics = new Statistics(history);
  const lifecycle: TestHost['lifecycle'] = { phase: 'ready' };
  const log: Record<string, unknown>[] = [];
  const logger: Logger = pino(
    { level: options.logLevel ?? 'debug' },
    { write: (line: string) => log.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const config = { ...testConfig, ...options.config, limits: { ...testConfig.limits, ...options.config?.limits } };
  const live = new LiveScheduler({
    policy: policies.best,
    cpu: { cores: 64, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: undefined, cores: 1 }),
    waitingMax: config.cpu.queueMax,
  });
  const recorders = new Set<InvocationRecorder>();
  const invoker: Invoker = new Invoker({
    registry: store,
    invokeOthers: (version, asking) => others(version, asking),
    pools,
    live,
    statistics,
    readyWaitMs: options.readyWaitMs ?? 1000,
    routing: options.routing === undefined ? undefined : () => options.routing,
    recorders,
  });
  const others = otherFunctions(invoker, store);
  const memory = { ...config.memory, kills: [], killCounts: new Map(), used: () => ({ parts: {}, processes: [] }) };
  const dependencies = { names: [], troubled: () => [], disk: undefined };
  const connections = new Connections({
    max: config.limits.connectionsMax,
    filesMax: undefined,
    trustedProxies: config.trustedProxies,
    warn: (facts, message) => logger.warn(facts, message),
  });
  const usage = new Usage(() => ({
    memoryUsedBytes: 0,
    waiting: 0,
    inFlight: 0,
    atWorkers: 0,
    gpus: [],
    linkBytes: [],
  }));
  const metrics = createMetrics({
    usage,
    connections,
    registry: store,
    pools,
    statistics,
    memory,
    dependencies,
    invoker,
    config,
  });
  store.put(functionVersion('pair'));
  const server = await createHttpServer({
    tls: certificateFilesOf(config, 'listen', () => undefined),
    config,
    access: new Access(config),
    inFlight: new InFlightBytes(config.limits.inFlightBytesMax),
    connections,
    store,
    pools,
    statistics,
    lifecycle,
    logger,
    logging: new Logging(logger),
    invoker,
    rollout: new Rollout({ store, invoker, recorders, eventLog: history.eventLog, logger }),
    metrics,
    hostVersion: '0.0.0',
    functionLog: new FunctionLog(),
    views: {
      outOfService: invoker.outOfService,
      open: invoker.open,
      registry: store,
      pools,
      statistics,
      history,
      memory,
      dependencies,
      usage,
      workers: () => [],
      redis: () => undefined,
    },
    scheduler: new SchedulerView({
      live,
      gpus: undefined,
      registry: store,
      config,
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
