/** Puts the host together: model store, pools, HTTP and metrics, from the first to the last of their days. */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from 'pino';
import { createCpuPools, groupsText, type ArrivalPrediction, type PoolFacts, type Reconfigured } from '../cpu/index.ts';
import { checkListen } from './config-listen.ts';
import { packageRoot } from './config-options.ts';
import { policyOf, type HostConfig } from './config.ts';
import { usageNow, type ViewSources } from './dashboard/index.ts';
import { FleetMember, fleetSecret } from './fleet-member/index.ts';
import { gpuViews, openGpus, SchedulerView, type GpuHost } from './gpu/index.ts';
import type { GrpcContext, GrpcListen, GrpcServer } from './grpc/index.ts';
import { FunctionLog, logHappenings, withFunctionLog } from './function-log.ts';
import { History, Usage } from './history/index.ts';
import { createHttpServer, readTls, type Lifecycle } from './http/index.ts';
import { Access } from './access.ts';
import { Invoker } from './invoke.ts';
import { evictionWords, LiveScheduler, type GpuEviction } from './live/index.ts';
import { createLogger, Logging } from './logger.ts';
import { Rollout } from './rollout.ts';
import { Shadows } from './shadows.ts';
import { formatMs } from '../tools/index.ts';
import { createMetrics } from './metrics.ts';
import { cpuOfferOf, cpuPlaceOf, keepPoolsInStep, rowsMaxOf, threadsOf, versionOf } from './pools-in-step.ts';
import { createPoolsPrediction } from './pools-prediction.ts';
import { createQueueing, WorkersWatch } from './queueing/index.ts';
import { recordersOf, type InvocationRecorder } from './placement.ts';
import { ReplayRuns } from './replays.ts';
import { Statistics } from './statistics.ts';
import { createModelStore, Validator } from './store/index.ts';
import type { Registry } from './types.ts';

export interface RunningHost {
  /** `http://127.0.0.1:8000`, a name that a client can use. */
  readonly url: string;
  /** Of the gRPC service, on the same address; undefined where there is none. */
  readonly grpcPort: number | undefined;
  /**
   * What a request of `name@version` would see now on its CPU pool; undefined where it was not measured. This is what
   * decides whether an invocation is worth offloading.
   */
  predictCpu(key: string): ArrivalPrediction | undefined;
  /** The GPUs and their scheduler; undefined where there is no driver. */
  readonly gpus: GpuHost | undefined;
  /** Lets accepted requests finish, at most `drainMs`, and ends every process. Resolves to false when some were cut off. */
  stop(): Promise<boolean>;
}

/** How the host has replays run: it knows none of the planners itself. */
export interface HostReplays {
  /** What runs `turntable`: the program and its first arguments. */
  readonly command: readonly string[];
  readonly tracesFolder: string;
}

/**
 * Starts the host. Resolves when it is ready: every function is read, and validated where that had not been done before.
 *
 * @throws the error of `listen`, such as EADDRINUSE; ConfigError where the configuration would expose management
 */
export async function startHost(
  config: HostConfig,
  options: {
    readonly logger?: Logger;
    readonly recorder?: InvocationRecorder | undefined;
    readonly replays?: HostReplays;
  } = {},
): Promise<RunningHost> {
  checkListen(config);
  const secret = fleetSecret(config);
  const ownLogger = options.logger ?? createLogger(config.log);
  const functionLog = new FunctionLog();
  const logger = withFunctionLog(ownLogger, functionLog);
  const statistics = new Statistics();
  const history = new History();
  const { happenings } = history;
  statistics.onRefused = (functionName) => history.refused(functionName);
  statistics.onFailed = (failure) => history.errors.add(failure, Date.now());
  const validator = new Validator({ timeoutMs: config.validator.timeoutMs });
  const hostVersion = packageVersion();
  const fleet = secret === undefined ? undefined : new FleetMember({ config, secret, hostVersion, happenings, logger });
  const store = createModelStore({
    dataDir: config.dataDir,
    dataDirBefore: config.dataDirBefore,
    functionsDir: config.functionsDir,
    healFrom: config.healFrom,
    fleet,
    defaults: config.defaults,
    limits: config.limits,
    validate: validator.validate,
    logger,
  });
  const facts = new Map<string, PoolFacts>();
  const cpuPools = createCpuPools({
    cores: config.cpu.cores,
    blankInstances: config.cpu.blankInstances,
    memoryBytes: config.cpu.memoryBytes,
    modelsOffline: config.cpu.modelNetwork === 'off',
    cacheFolder: join(config.dataDir, 'cache', 'weights'),
    onFacts: (known) => {
      facts.set(known.key, known);
      live.session(known.key, known.bytes);
      live.setCpu(cpuPlaceOf(cpuPools));
    },
    onReconfigured: (change) => reconfigured(change, store, history, logger),
    log: (pid, key, line) => {
      ownLogger.info({ pid, function: key }, line);
      if (key !== undefined) functionLog.add(key, { source: 'handler', level: 'info', text: line });
    },
    onLoaded: ({ key, loadMs }) => {
      functionLog.add(key, { source: 'instance', level: 'info', text: `an instance loaded it in ${formatMs(loadMs)}` });
      const version = versionOf(store, key);
      if (version !== undefined) statistics.loaded(statistics.of(version), loadMs, version.modelBytes);
    },
    onGivenUp: ({ key, cause, ageMs, reason }) => {
      if (cause === 'died') {
        logger.warn({ function: key, reason }, 'instance died');
      } else {
        logger.debug({ function: key, cause, ageMs: Math.round(ageMs) }, 'instance given up');
        const text = `an instance was given up after ${formatMs(ageMs)}: ${leavingWords[cause]}`;
        functionLog.add(key, { source: 'instance', level: 'info', text });
      }
      const version = versionOf(store, key);
      if (version === undefined) return;
      statistics.evicted(statistics.of(version), cause, ageMs);
      const functionName = version.name;
      if (cause === 'died') history.happenings.add({ kind: 'instance-died', functionName, reason });
      else
        history.happenings.add({
          kind: 'eviction',
          functionName,
          cause: leavingWords[cause],
          ageMs,
          where: 'the CPU pool',
        });
    },
  });
  const prediction = createPoolsPrediction({
    pools: cpuPools,
    registry: store,
    statistics,
    config,
    batchMaxOf: (version) => rowsMaxOf(version, config),
    onChecked: (name, predictedMs, observedMs) => history.predicted(name, predictedMs, observedMs),
    logger,
  });
  const { pools } = prediction;
  keepPoolsInStep(store, pools, config, logger);
  const queueing = await createQueueing({ config, registry: store, logger });
  const live = new LiveScheduler({
    policy: policyOf(config),
    cpu: cpuPlaceOf(cpuPools),
    cpuOffer: (key) => cpuOfferOf(key, store, config, prediction.predictCpu, facts.get(key)),
    workersOffer: (key, ownMs) => workers?.offer(key, ownMs) ?? null,
    evictCpu: (key) => void pools.evict(key).catch(() => undefined),
    waitingMax: config.cpu.queueMax,
    onGpuNews: (key, news) => {
      gpus?.news(key, news);
      if (news.kind === 'evicted') evictedFromGpu(news.eviction, store, statistics, history);
    },
    onDefect: (message) => logger.error(message),
  });
  const workers = queueing.overflow && new WorkersWatch(queueing.overflow, (place) => live.setWorkers(place));
  const gpus = await openGpus({
    config,
    registry: store,
    statistics,
    history,
    logger,
    live,
    leaseCores: (count) => pools.leaseCores('plans over GPU and CPU', count),
  });
  const rollout = new Rollout({
    store,
    invoker: {
      ready: (version) => invoker.ready(version),
      load: async (version) => await invoker.load(version),
      tryOut: async (version, input) => await invoker.tryOut(version, input),
    },
    happenings,
    logger,
  });
  const shadows = new Shadows({ store, run: async (version, input) => await invoker.tryOut(version, input) });
  const invoker: Invoker = new Invoker({
    registry: store,
    pools,
    statistics,
    recorder: recordersOf(history, rollout, options.recorder),
    onAnswered: async (version, input, output) => await shadows.answered(version, input, output),
    queueing,
    live,
    gpus,
    unloaded: config.unloaded,
    ...(fleet === undefined ? {} : { routing: () => fleet.routing }),
  });
  const metrics = createMetrics({
    registry: store,
    pools,
    statistics,
    memoryBytes: totalmem(),
    fleet,
    queueing,
    cameBack: () => invoker.cameBack,
    split: () => invoker.split,
    shadows,
    gpus,
    threadsOf: (version) => threadsOf(version, config),
    batchMaxOf: (version) => rowsMaxOf(version, config),
  });
  keepHistoryInStep(store, history, functionLog);
  logHappenings(history.happenings, functionLog);
  const busy = {
    pools,
    statistics,
    workers: () => queueing.overflow?.workers() ?? [],
    ...(gpus === undefined ? {} : { gpus: gpuViews(gpus, store, statistics) }),
  };
  const usage = new Usage(() => usageNow(busy), busy.gpus?.refresh);
  const views: ViewSources = {
    ...busy,
    registry: store,
    history,
    usage,
    totalMemoryBytes: totalmem(),
    redis: () => queueing.health()?.status ?? 'off',
    fleet: fleet === undefined ? undefined : config.fleet.name,
  };
  const scheduler = new SchedulerView({
    live,
    gpus,
    registry: store,
    mode: config.gpu.mode,
    policy: config.gpu.policy,
    policyParts: policyOf(config),
    cpuCores: config.cpu.cores,
    cpuOffer: (key) => cpuOfferOf(key, store, config, prediction.predictCpu, facts.get(key)),
  });
  const replays = options.replays && new ReplayRuns({ ...options.replays, folder: join(config.dataDir, 'replays') });
  const lifecycle: { phase: Lifecycle['phase'] } = { phase: 'starting' };
  const end = async (graceMs: number): Promise<void> => {
    validator.stop();
    usage.close();
    workers?.close();
    live.close();
    await fleet?.close();
    await queueing.stop(graceMs);
    await gpus?.close();
    await prediction.close();
    await pools.stop(graceMs);
    metrics.close();
    await replays?.close();
    await store.close();
  };
  let http;
  let grpc: GrpcServer | undefined;
  try {
    const logging = new Logging(logger);
    const access = new Access(config);
    const shared = {
      config,
      access,
      store,
      invoker,
      rollout,
      shadows,
      pools,
      statistics,
      logger,
      logging,
      lifecycle,
      hostVersion,
    };
    const tls = await readTls(config);
    http = await createHttpServer({ ...shared, tls, functionLog, fleet, metrics, queueing, views, scheduler, replays });
    grpc = await startGrpc(shared, tls);
    await Promise.all([store.start(), cpuPools.started()]);
    await fleet?.start({ url: http.url, store, live, statistics });
  } catch (error) {
    await http?.close(0);
    await grpc?.close(0);
    await end(0);
    throw error;
  }
  lifecycle.phase = 'ready';
  queueing.start(http.url, http.runCall);
  logger.info({ url: http.url, grpcPort: grpc?.port, functions: store.names().length }, 'ready');

  const server = http;
  let stopped: Promise<boolean> | undefined;
  const stop = async (): Promise<boolean> => {
    lifecycle.phase = 'draining';
    logger.info({ drainMs: config.drainMs }, 'draining');
    // Who waits for an answer holds a connection, so once the connections are done the pools have nothing left to do.
    await fleet?.stopping();
    grpc?.drain();
    const [clean, cleanGrpc] = await Promise.all([
      server.close(config.drainMs),
      grpc?.close(config.drainMs) ?? true,
      queueing.stop(config.drainMs),
    ]);
    await end(0);
    logger.info({ clean: clean && cleanGrpc }, 'stopped');
    return clean && cleanGrpc;
  };
  return {
    url: server.url,
    grpcPort: grpc?.port,
    predictCpu: prediction.predictCpu,
    gpus,
    stop: () => (stopped ??= stop()),
  };
}

/** gRPC is loaded only where it listens. A port that nobody asked for by name may be taken: then HTTP serves alone. */
async function startGrpc(context: GrpcContext, tls: GrpcListen['tls']): Promise<GrpcServer | undefined> {
  const { config, logger } = context;
  const { port, isAuto } = config.grpc;
  if (port === 'off') return undefined;
  const { createGrpcServer } = await import('./grpc/index.ts');
  try {
    return await createGrpcServer(context, { host: config.listen.host, port, tls });
  } catch (error) {
    const isTaken = error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
    if (!isAuto || !isTaken) throw error;
    logger.warn(
      { port },
      'the port of gRPC is in use: this host serves HTTP alone (set grpc.port to another, or to off)',
    );
    return undefined;
  }
}

function evictedFromGpu(
  { key, gpu, bytes, cause, by, ageMs }: GpuEviction,
  registry: Registry,
  statistics: Statistics,
  history: History,
): void {
  const version = versionOf(registry, key);
  if (version === undefined) return;
  statistics.evicted(statistics.of(version), `gpu ${cause}`, ageMs);
  history.happenings.add({
    kind: 'eviction',
    functionName: version.name,
    cause: `${evictionWords[cause]}${by === undefined ? '' : ` (${by})`}, ${Math.round(bytes / 1024)} KiB`,
    ageMs,
    where: `GPU ${gpu}`,
  });
}

/** Why an instance was given up, as an operator reads it. */
const leavingWords = {
  idle: 'it had nothing to do for longer than the idle time',
  room: 'another function needed the place',
  unload: 'it was unloaded, replaced or removed',
  reconfigured: 'its pool was given another configuration',
} as const;

/** Publications and removals are told, and what was removed is forgotten. */
function keepHistoryInStep(registry: Registry, history: History, functionLog: FunctionLog): void {
  registry.onChange(({ before, after }) => {
    if (after?.state.status === 'ready' && before?.state.status !== 'ready') {
      history.happenings.add({ kind: 'published', functionName: after.name, version: after.version });
    }
    if (before === undefined || after !== undefined) return;
    if (registry.versions(before.name).length === 0) {
      history.forget(before.name);
      functionLog.forget(before.name);
    }
    history.happenings.add({ kind: 'removed', functionName: before.name, version: before.version });
  });
}

function reconfigured(change: Reconfigured, registry: Registry, history: History, logger: Logger): void {
  const { key, cause, state, kind, ms, to } = change;
  const functionName = versionOf(registry, key)?.name;
  if (functionName !== undefined && change.state === 'done' && kind !== 'none') {
    const configuration = to === undefined ? 'instances on demand' : groupsText(to.groups);
    history.happenings.add({ kind: 'reconfiguration', functionName, configuration, cause, tookMs: ms });
  }
  const facts = { function: key, cause, kind, ms: Math.round(ms), configuration: to ?? 'on demand' };
  if (change.state === 'failed' || change.state === 'refused') {
    logger.warn({ ...facts, reason: change.reason }, `pool configuration ${state}`);
  } else if (kind !== 'none') {
    logger.info(facts, 'pool reconfigured');
  }
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };
  return version;
}
