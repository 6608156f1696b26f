/** Puts the host together: model store, pools, HTTP and metrics, from the first to the last of their days. */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from 'pino';
import {
  batchDimension,
  createCpuPools,
  groupsText,
  type ArrivalPrediction,
  type CpuPools,
  type PoolLimits,
  type Reconfigured,
} from '../cpu/index.ts';
import { checkListen } from './config-listen.ts';
import { packageRoot } from './config-options.ts';
import type { HostConfig } from './config.ts';
import type { ViewSources } from './dashboard/index.ts';
import { cpuOfferOf, gpuViews, openGpus, SchedulerView, type GpuHost } from './gpu/index.ts';
import { History } from './history/index.ts';
import { createHttpServer, type Lifecycle } from './http/index.ts';
import { Invoker } from './invoke.ts';
import { createLogger } from './logger.ts';
import { createMetrics } from './metrics.ts';
import { createPoolsPrediction } from './pools-prediction.ts';
import { createQueueing } from './queueing/index.ts';
import { recordersOf, type InvocationRecorder } from './recorder.ts';
import { ReplayRuns } from './replays.ts';
import { Statistics } from './statistics.ts';
import { createModelStore, createValidator } from './store/index.ts';
import type { FunctionVersion, Registry } from './types.ts';

export interface RunningHost {
  /** `http://127.0.0.1:8000`, a name that a client can use. */
  readonly url: string;
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
  const logger = options.logger ?? createLogger(config.log);
  const statistics = new Statistics();
  const history = new History();
  const validator = createValidator({ timeoutMs: config.validator.timeoutMs });
  const store = createModelStore({
    dataDir: config.dataDir,
    functionsDir: config.functionsDir,
    defaults: config.defaults,
    limits: config.limits,
    validate: validator.validate,
    logger,
  });
  const cpuPools = createCpuPools({
    cores: config.cpu.cores,
    blankInstances: config.cpu.blankInstances,
    instancesMax: config.cpu.instancesMax,
    cacheFolder: join(config.dataDir, 'cache', 'weights'),
    onReconfigured: (change) => reconfigured(change, store, history, logger),
    log: (pid, key, line) => logger.info({ pid, function: key }, line),
    onLoaded: ({ key, loadMs }) => {
      const version = versionOf(store, key);
      if (version !== undefined) statistics.loaded(statistics.of(version), loadMs, version.modelBytes);
    },
    onGivenUp: ({ key, cause, ageMs, reason }) => {
      if (cause === 'died') logger.warn({ function: key, reason }, 'instance died');
      else logger.debug({ function: key, cause, ageMs: Math.round(ageMs) }, 'instance given up');
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
  const queueing = await createQueueing({ config, registry: store, pools, logger });
  const gpus = await openGpus({
    config,
    registry: store,
    statistics,
    history,
    logger,
    predictCpu: prediction.predictCpu,
    leaseCores: (count) => pools.leaseCores('plans over GPU and CPU', count),
  });
  const invoker = new Invoker({
    registry: store,
    pools,
    statistics,
    recorder: recordersOf(history, options.recorder),
    queueing,
    gpus,
    slotsOf: (version) => limitsOf(version, true, config).instancesMax,
    predictLocalMs: ({ key }) => prediction.predictCpu(key)?.latencyMs,
  });
  const metrics = createMetrics({
    registry: store,
    pools,
    statistics,
    memoryBytes: totalmem(),
    queueing,
    placer: invoker.placer,
    gpus,
    threadsOf: (version) => threadsOf(version, config),
    batchMaxOf: (version) => rowsMaxOf(version, config),
  });
  keepHistoryInStep(store, history);
  const views: ViewSources = {
    registry: store,
    pools,
    statistics,
    history,
    totalMemoryBytes: totalmem(),
    ...(gpus === undefined ? {} : { gpus: gpuViews(gpus, store, statistics) }),
  };
  const scheduler = new SchedulerView({
    gpus,
    registry: store,
    mode: config.gpu.mode,
    policy: config.gpu.policy,
    cpuCores: config.cpu.cores,
    cpuOffer: (key) => cpuOfferOf(prediction.predictCpu(key)),
  });
  const replays = options.replays && new ReplayRuns({ ...options.replays, folder: join(config.dataDir, 'replays') });
  const lifecycle: { phase: Lifecycle['phase'] } = { phase: 'starting' };
  const end = async (graceMs: number): Promise<void> => {
    validator.stop();
    await queueing.stop(graceMs);
    await gpus?.close();
    await prediction.close();
    await pools.stop(graceMs);
    metrics.close();
    await replays?.close();
    await store.close();
  };
  let http;
  try {
    http = await createHttpServer({
      config,
      store,
      invoker,
      pools,
      metrics,
      statistics,
      logger,
      lifecycle,
      hostVersion: packageVersion(),
      queueing,
      views,
      scheduler,
      replays,
    });
    await store.start();
  } catch (error) {
    await http?.close(0);
    await end(0);
    throw error;
  }
  lifecycle.phase = 'ready';
  queueing.start(http.url, http.runCall);
  logger.info({ url: http.url, functions: store.names().length }, 'ready');

  const server = http;
  let stopped: Promise<boolean> | undefined;
  const stop = async (): Promise<boolean> => {
    lifecycle.phase = 'draining';
    logger.info({ drainMs: config.drainMs }, 'draining');
    // Who waits for an answer holds a connection, so once the connections are done the pools have nothing left to do.
    const [clean] = await Promise.all([server.close(config.drainMs), queueing.stop(config.drainMs)]);
    await end(0);
    logger.info({ clean }, 'stopped');
    return clean;
  };
  return { url: server.url, predictCpu: prediction.predictCpu, gpus, stop: () => (stopped ??= stop()) };
}

/** Makes each ready version known to the pools, and only those; a changed model or handler gets instances of its own. */
function keepPoolsInStep(registry: Registry, pools: CpuPools, config: HostConfig, logger: Logger): void {
  const known = new Map<string, FunctionVersion>();
  const forget = (key: string): void => {
    if (!known.delete(key)) return;
    pools.unregister(key).catch((error: unknown) => {
      logger.error({ err: error, function: key }, 'the pool could not be ended');
    });
  };
  registry.onChange(({ before, after }) => {
    const name = after?.name ?? before?.name;
    if (name === undefined) return;
    if (before !== undefined && after === undefined) forget(before.key);
    const current = registry.find(name);
    for (const version of registry.versions(name)) {
      const last = known.get(version.key);
      if (version.state.status !== 'ready' || (last !== undefined && !sameInstances(last, version))) {
        forget(version.key);
      }
      if (version.state.status !== 'ready') continue;
      known.set(version.key, version);
      const { key, modelPath, handlerPath, metadata } = version;
      pools.register(
        {
          key,
          modelPath,
          threads: threadsOf(version, config),
          modelIdentity: [version.modelSha256, version.externalDataStamp ?? ''].join(' '),
          ...(metadata === undefined ? {} : { inputNames: metadata.inputs.map(({ name }) => name) }),
          ...(handlerPath === undefined ? {} : { handlerPath }),
        },
        limitsOf(version, version.key === current?.key, config),
      );
    }
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
function keepHistoryInStep(registry: Registry, history: History): void {
  registry.onChange(({ before, after }) => {
    if (after?.state.status === 'ready' && before?.state.status !== 'ready') {
      history.happenings.add({ kind: 'published', functionName: after.name, version: after.version });
    }
    if (before === undefined || after !== undefined) return;
    if (registry.versions(before.name).length === 0) history.forget(before.name);
    history.happenings.add({ kind: 'removed', functionName: before.name, version: before.version });
  });
}

function sameInstances(one: FunctionVersion, other: FunctionVersion): boolean {
  return (
    one.modelSha256 === other.modelSha256 &&
    one.externalDataStamp === other.externalDataStamp &&
    one.modelPath === other.modelPath &&
    one.handlerPath === other.handlerPath &&
    one.settings.cpu.threads === other.settings.cpu.threads
  );
}

function threadsOf(version: FunctionVersion, config: HostConfig): number {
  return Math.min(version.settings.cpu.threads ?? config.cpu.threads, config.cpu.cores);
}

function limitsOf(version: FunctionVersion, isCurrent: boolean, config: HostConfig): PoolLimits {
  const { settings, metadata } = version;
  // A model whose first dimension is fixed says how large its batch is; requests cannot be joined to another size. Where
  // its inputs have no first dimension in common, each request is one row.
  const dimension = batchDimension(metadata?.inputs ?? []);
  const isOpen = dimension.kind === 'open';
  return {
    // A pin keeps the version that serves; the ones it has replaced give their instances back.
    instancesMin: settings.pinned && isCurrent ? 1 : 0,
    instancesMax: settings.cpu.instancesMax ?? Math.max(1, Math.floor(config.cpu.cores / threadsOf(version, config))),
    queueMax: config.cpu.queueMax,
    batchMax: isOpen ? settings.batching.batchMax : 1,
    ...(isOpen ? undefined : { batchFixed: dimension.kind === 'fixed' ? dimension.rows : 1 }),
    batchDelayMs: settings.batching.delayMs,
    idleMs: config.cpu.idleMs,
    handlerTimeoutMs: settings.timeouts.handlerMs,
    loadTimeoutMs: settings.timeouts.loadMs,
    inferTimeoutMs: settings.timeouts.inferMs,
  };
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

/** Most rows of one run: of a model whose batch is fixed those that it has. */
function rowsMaxOf(version: FunctionVersion, config: HostConfig): number {
  const { batchMax, batchFixed } = limitsOf(version, true, config);
  return batchFixed ?? batchMax;
}

function versionOf(registry: Registry, key: string): FunctionVersion | undefined {
  const at = key.lastIndexOf('@');
  return registry.find(key.slice(0, at), key.slice(at + 1));
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };
  return version;
}
