/** Builds the host from its parts (model store, pools, HTTP, metrics), starts it and stops it. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { CpuPools } from '../cpu/index.ts';
import { Access } from './access/access.ts';
import { certificateFilesOf } from './config/certificate-files.ts';
import { checkListen } from './config/listen.ts';
import { packageRoot } from './config/options.ts';
import { ConfigError } from './config/config-error.ts';
import { policyOf, type HostConfig } from './config/config.ts';
import { CpuSide } from './pools/cpu-side.ts';
import { usageNow, waitingCount, type ViewSources } from './dashboard/index.ts';
import { Dependencies } from './dependencies.ts';
import { HostError } from './errors.ts';
import type { Membership } from '../fleet/index.ts';
import { checkFleet, FleetMember } from './fleet-member/index.ts';
import { gpuViews, openGpus, SchedulerView, type GpuHost } from './gpu/index.ts';
import type { GrpcContext, GrpcListen, GrpcServer } from './grpc/index.ts';
import { Usage } from './history/index.ts';
import { createHttpServer, type HttpServer, type HttpServerOptions, type Lifecycle } from './http/index.ts';
import { Connections } from './limits/connections.ts';
import { InFlightBytes } from './limits/in-flight.ts';
import { otherFunctions } from './calls/invoke-others.ts';
import { Invoker } from './calls/invoke.ts';
import type { OtherPlace } from './calls/other-place.ts';
import { LiveScheduler } from '../live/index.ts';
import { createLogger, Logging } from './records/logger.ts';
import { MemoryBudgets } from './limits/memory-budgets.ts';
import { createMetrics } from './metrics/metrics.ts';
import type { InvocationRecorder } from './calls/placement.ts';
import { createQueueing, type Queueing } from './queueing/index.ts';
import { HostRecords } from './records/records.ts';
import { Rollout } from './rollout/rollout.ts';
import { DiskModelStore, validationsAtOnce, Validator } from './store/index.ts';
import { openStore, type Store } from '../store/index.ts';
import { readDescriptors, validatorLimitBytes } from '../hardware/index.ts';
import { heap, kernelKills } from '../process/index.ts';
import { doneWithin } from '../tools/index.ts';

export interface RunningHost {
  /** `http://127.0.0.1:8000`, an address that a client can use. */
  readonly url: string;
  /** Port of the gRPC service, on the same address; undefined if there is none. */
  readonly grpcPort: number | undefined;
  /** The GPUs and their scheduler; undefined without a driver. */
  readonly gpus: GpuHost | undefined;
  /**
   * Takes the API keys that `read` returns, over HTTP and gRPC; if it throws, or they are no good, the known ones stay. The
   * log says which.
   */
  reloadKeys(read: () => readonly string[]): void;
  /** Lets accepted requests finish within `drainMs`, ends every process. Resolves to false when some were cut off. */
  stop(): Promise<boolean>;
}

export interface HostOptions {
  readonly logger?: Logger;
  readonly recorder?: InvocationRecorder | undefined;
  /** Places of other kinds than GPUs, CPU pools and workers, on which it runs calls too. */
  readonly places?: readonly OtherPlace[];
  /** Its process does nothing else. */
  readonly isAlone?: boolean;
}

/** What a host keeps of a function that nobody has called: 800 of them take 35 MB. */
const bytesOfFunction = 44_000;

/**
 * Starts the host. Resolves when it is ready: every function is read, and validated if it was not before.
 *
 * @throws the error of `listen`, such as EADDRINUSE; ConfigError if the configuration would expose management
 */
export async function startHost(config: HostConfig, options: HostOptions = {}): Promise<RunningHost> {
  checkListen(config);
  checkFleet(config);
  const hostVersion = packageVersion();
  const records = new HostRecords(options.logger ?? createLogger(config.log));
  const { logger, statistics, history, functionLog } = records;
  const unusable = (reason: string): void =>
    logger.warn({ reason }, 'certificate files have changed and cannot be used: the former certificate stays');
  const fleetTls = certificateFilesOf(config, 'fleet', unusable);
  const tls = certificateFilesOf(config, 'listen', unusable);
  const { eventLog } = history;
  heap.keepForAnswers();
  const validator = new Validator({
    timeoutMs: config.validator.timeoutMs,
    memoryBytes: validatorLimitBytes(config.memory, validationsAtOnce),
  });
  const member = new FleetMember({ config, tls: fleetTls, hostVersion, eventLog, logger });
  const fleet = config.fleet.name === undefined ? undefined : member;
  const sharedStore = await storeOf(config);
  const store = new DiskModelStore({
    ...config,
    ...(sharedStore === undefined
      ? {}
      : {
          shared: {
            store: sharedStore,
            cacheBytes: config.store.cacheBytes,
            idleMs: (key) => live.placeOf(key)?.idleMs ?? Infinity,
            broadcast: {
              tell: (name) => queueing?.broadcast.tell(name),
              follow: (listener) => queueing?.broadcast.follow(listener) ?? ((): void => undefined),
            },
          },
        }),
    validate: validator.validate,
    inTurn: validator.inTurn,
    whyNowhere: (name, modelBytes) => {
      // GPUs, other places and other hosts may take what this CPU cannot.
      const hasOthers = gpus !== undefined || others.length > 0 || fleet !== undefined;
      return hasOthers ? undefined : cpu.refusalOfSize(name, modelBytes);
    },
    logger,
  });
  const inFlight = new InFlightBytes(config.limits.inFlightBytesMax, {
    ...options,
    keptBytes: () => history.functionBytes + store.names().length * bytesOfFunction,
  });
  const answers = inFlight.held(() => undefined, 0);
  const cpu = new CpuSide({
    config,
    registry: store,
    records,
    replies: answers,
    onRowsMix: ({ key, reason }) => store.rowsMix(key, reason),
  });
  const { pools } = cpu.live;
  const queueing = await createQueueing({
    config,
    registry: store,
    store,
    logger,
    onWorkerLost: (workerLost) => {
      const message = `Worker ${workerLost} fell silent: its calls run elsewhere`;
      eventLog.add({ kind: 'host', level: 'warning', message, workerLost });
    },
  });
  const others = [...(queueing === undefined ? [] : [queueing.workers]), ...(options.places ?? [])];
  const live = new LiveScheduler({
    policy: policyOf(config),
    ...cpu.live.asPlace,
    others,
    waitingMax: config.cpu.queueMax,
    onGpuReport: (key, report) => {
      gpus?.report(key, report);
      if (report.kind === 'evicted') records.evictedFromGpu(report.eviction);
    },
    isForCaller: (error) => error instanceof HostError,
    onDefect: (message) => logger.error(message),
  });
  cpu.live.join(live);
  const gpus = await openGpus({ config, registry: store, records, live, pools, answers });
  const memory = new MemoryBudgets({
    budget: config.memory,
    held: () => ({
      sessions: pools.resources().memoryUsedBytes,
      inFlight: inFlight.bytes,
      pinned: gpus?.lastState?.host.usedBytes ?? 0,
    }),
    logger,
    onKill: (message) => eventLog.add({ kind: 'host', level: 'warning', message }),
    onChange: (part, bytes) => {
      if (part === 'pinned') gpus?.setHostBytes(bytes);
      else pools.setMemory(bytes, memory.parts.loads);
    },
  });
  const forgetKills = kernelKills.follow((kill) => memory.killed(kill));
  const dependencies = new Dependencies({
    dataDir: config.dataDir,
    certificates: [tls, fleetTls].flatMap((files) => (files === undefined ? [] : () => files.ends)),
    redis: queueing && (() => queueing.link.health),
    store: store.watch && (() => store.watch?.trouble),
    workers:
      queueing && (() => workersNow(queueing, waitingCount(pools, gpus && { waiting: () => live.waitingCount }))),
  });
  const busy = {
    pools,
    statistics,
    workers: () => queueing?.overflow.workers() ?? [],
    ...(gpus === undefined ? {} : { gpus: gpuViews(gpus, store, statistics) }),
  };
  const usage = new Usage(() => usageNow(busy), busy.gpus?.refresh);
  const parts = { config, usage, dependencies, memory, store, pools, records, queueing, others, live, gpus, fleet };
  const calls = callsOf(parts, options.recorder, cpu);
  const connections = new Connections({
    max: config.limits.connectionsMax,
    filesMax: readDescriptors().most,
    trustedProxies: config.trustedProxies,
    warn: (facts, message) => logger.warn(facts, message),
  });
  const metrics = createMetrics({ ...parts, ...calls, registry: store, statistics, connections });
  records.follow(store);
  const views = viewsOf(parts, busy, calls.invoker);
  const scheduler = new SchedulerView({ config, registry: store, live, gpus, cpuOffer: (key) => cpu.live.offer(key) });
  const lifecycle: { phase: Lifecycle['phase'] } = { phase: 'starting' };
  const end = async (): Promise<void> => {
    forgetKills();
    memory.close();
    dependencies.close();
    tls?.close();
    fleetTls?.close();
    validator.stop();
    usage.close();
    live.close();
    await member.leave();
    queueing?.close();
    await gpus?.close();
    await cpu.stop(0);
    metrics.close();
    await store.close();
  };
  const shown = { functionLog, metrics, views, scheduler };
  const context = { ...parts, ...calls, ...shown, statistics, logger, lifecycle, hostVersion };
  const host = await open(
    {
      ...context,
      tls,
      access: new Access(config),
      inFlight,
      connections,
      logging: new Logging(logger),
    },
    lifecycle,
    end,
    async ({ url, serveMembers }) => {
      await Promise.all([store.start(), pools.started()]);
      // The data folder is there from now on.
      await dependencies.look();
      if (queueing === undefined) return undefined;
      return await member.start({ url, serve: serveMembers, store, live, statistics, queueing });
    },
  );
  return { ...host, gpus };
}

/**
 * Listens, and serves once the parts have started.
 *
 * @param begin called once it is known where the host listens; resolves to this host's membership, if it has Redis
 * @param end ends the parts, after the last call
 */
async function open(
  context: HttpServerOptions,
  lifecycle: { phase: Lifecycle['phase'] },
  end: () => Promise<void>,
  begin: (http: HttpServer) => Promise<Membership | undefined>,
): Promise<Pick<RunningHost, 'url' | 'grpcPort' | 'reloadKeys' | 'stop'>> {
  const { config, logger, store, fleet, queueing, statistics } = context;
  let http: HttpServer | undefined;
  let grpc: GrpcServer | undefined;
  let membership: Membership | undefined;
  const close = async (graceMs: number): Promise<boolean> => {
    const endMs = performance.now() + graceMs;
    // While work is left, the host listens and answers that it drains.
    const drained = await Promise.all([
      http?.drain(graceMs),
      queueing?.stop(graceMs),
      doneWithin(graceMs, statistics.noneInFlight()),
    ]);
    const leftMs = Math.max(0, endMs - performance.now());
    const closed = await Promise.all([http?.close(leftMs), grpc?.close(leftMs)]);
    await end();
    return ![...drained, ...closed].includes(false);
  };
  try {
    http = await createHttpServer(context);
    grpc = await startGrpc(context, context.tls);
    membership = await begin(http);
  } catch (error) {
    await close(0);
    throw error;
  }
  const { url, runCall } = http;
  const grpcPort = grpc?.port;
  lifecycle.phase = 'ready';
  if (membership !== undefined) queueing?.start(runCall, membership);
  // Who started it says so; two lines about one thing, in two formats, would be the first that a newcomer sees.
  logger.debug({ url, grpcPort, functions: store.names().length }, 'ready');
  const stop = async (): Promise<boolean> => {
    lifecycle.phase = 'draining';
    logger.info({ drainMs: config.drainMs }, 'draining');
    // Every waiting client holds a connection, so once the connections are closed the pools have no work left.
    grpc?.drain();
    await fleet?.stopping();
    const clean = await close(config.drainMs);
    logger.info({ clean }, 'stopped');
    return clean;
  };
  let stopped: Promise<boolean> | undefined;
  const reloadKeys = (read: () => readonly string[]): void => {
    try {
      if (context.access.setKeys(read())) logger.info('the API keys of the configuration file are in force');
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      logger.warn({ reason }, 'the configuration file has changed and cannot be used: the API keys stay as they were');
    }
  };
  return { url, grpcPort, reloadKeys, stop: () => (stopped ??= stop()) };
}

/** What the parts below are built from. */
interface Parts {
  readonly config: HostConfig;
  readonly usage: Usage;
  readonly dependencies: Dependencies;
  readonly memory: MemoryBudgets;
  readonly store: DiskModelStore;
  readonly pools: CpuPools;
  readonly records: HostRecords;
  readonly queueing: Queueing | undefined;
  readonly others: readonly OtherPlace[];
  readonly live: LiveScheduler;
  readonly gpus: GpuHost | undefined;
  readonly fleet: FleetMember | undefined;
}

/** What runs calls, and what judges new versions by them. */
function callsOf(
  { config, usage, store, records, fleet, ...parts }: Parts,
  recorder: InvocationRecorder | undefined,
  cpu: CpuSide,
) {
  const { statistics, history, logger } = records;
  const recorders = new Set<InvocationRecorder>(recorder === undefined ? [] : [recorder]);
  const rollout = new Rollout({
    store,
    recorders,
    invoker: {
      ready: (version) => invoker.ready(version),
      load: async (version) => await invoker.load(version),
      tryOut: async (version, input) => await invoker.tryOut(version, input),
    },
    eventLog: history.eventLog,
    logger,
  });
  const invoker: Invoker = new Invoker({
    ...parts,
    registry: store,
    statistics,
    recorders,
    unloaded: config.unloaded,
    isCache: config.store.place !== undefined,
    machine: (lastMs) => usage.busiest(lastMs),
    cpuRefusal: cpu.refusal,
    slowdownAt: cpu.slowdownAt,
    observer: cpu.calls,
    invokeOthers: (version, options) => others(version, options),
    ...(fleet === undefined ? {} : { routing: () => fleet.routing }),
  });
  const others = otherFunctions(invoker, store);
  return { invoker, rollout };
}

function workersNow({ overflow }: Queueing, waiting: number) {
  const taking = overflow.workers().filter(({ draining }) => !draining).length;
  return { taking, waiting: waiting + overflow.state().outstanding };
}

function viewsOf(
  { config, usage, dependencies, memory, store, records, queueing, fleet }: Parts,
  busy: Pick<ViewSources, 'pools' | 'statistics' | 'workers' | 'gpus'>,
  { outOfService, open }: Invoker,
): ViewSources {
  const { history } = records;
  return {
    ...busy,
    outOfService,
    open,
    registry: store,
    history,
    usage,
    memory,
    dependencies,
    diskUse: store.diskUse,
    redis: () => queueing?.link.health,
    fleet: fleet === undefined ? undefined : config.fleet.name,
  };
}

/**
 * gRPC is loaded only if it listens. If the configuration names no port and the default is taken, HTTP serves alone.
 */
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

/** Where the functions live; undefined: in the data folder. @throws ConfigError */
async function storeOf({ store: { place } }: HostConfig): Promise<Store | undefined> {
  try {
    return place === undefined ? undefined : await openStore(place, process.env);
  } catch (error) {
    throw new ConfigError(`"store.place": ${(error as Error).message}`);
  }
}

function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };
  return version;
}
