/** Puts together what carries work out of this process: the overflow queue, and with Redis the asynchronous calls. */
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import type { CpuPools } from '../../cpu/index.ts';
import {
  createInProcessQueue,
  loadRedisQueue,
  type AsyncCalls,
  type CallRunner,
  type OverflowQueue,
  type QueueHealth,
  type RedisLink,
  type Taker,
} from '../../queue/index.ts';
import type { HostConfig } from '../config.ts';
import type { Registry } from '../types.ts';
import { FunctionFiles } from './function-files.ts';

export interface Queueing {
  /** Where overflow goes. Without Redis it is in memory and this machine's own pool takes from it. */
  readonly overflow: OverflowQueue;
  /** Whether it leads to other machines. */
  readonly remote: boolean;
  /** Undefined without Redis. */
  readonly calls: AsyncCalls | undefined;
  readonly files: FunctionFiles | undefined;
  /** How Redis is; undefined where none is configured. */
  readonly health: () => QueueHealth | undefined;
  /** Begins to hand out and to run; `url` is where this host listens, `run` runs an asynchronous call. */
  start(url: string, run: CallRunner): void;
  stop(graceMs: number): Promise<void>;
}

export interface QueueingOptions {
  readonly config: HostConfig;
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly logger: Logger;
}

/** A Redis that has not answered so long after the host's start is said to be away. */
const firstAnswerMs = 2000;

export async function createQueueing(options: QueueingOptions): Promise<Queueing> {
  const { url } = options.config.redis;
  return url === undefined ? localQueueing(options) : await redisQueueing(options, url);
}

function localQueueing({ config, pools, registry }: QueueingOptions): Queueing {
  const overflow = createInProcessQueue({
    takers: [ownPools(pools, registry, config)],
    waitingMax: config.queue.outstandingMax,
  });
  return {
    overflow,
    remote: false,
    calls: undefined,
    files: undefined,
    health: () => undefined,
    start: () => undefined,
    stop: async (graceMs) => await overflow.stop(graceMs),
  };
}

/** This machine's pools as one that takes overflow, for whoever else on this machine has too much to do. */
function ownPools(pools: CpuPools, registry: Registry, config: HostConfig): Taker {
  const outstanding = new Map<string, number>();
  const callMs = new Map<string, number>();
  return {
    name: 'cpu pool',
    cores: config.cpu.cores,
    capacity: (key) => {
      const at = key.lastIndexOf('@');
      const version = registry.find(key.slice(0, at), key.slice(at + 1));
      if (version?.state.status !== 'ready') return undefined;
      const threads = Math.min(version.settings.cpu.threads ?? config.cpu.threads, config.cpu.cores);
      return {
        slots: Math.max(1, Math.floor(config.cpu.cores / threads)),
        threads,
        callMs: callMs.get(key),
        held: true,
        startMs: 0,
        outstanding: outstanding.get(key) ?? 0,
      };
    },
    run: async (key, input, options) => {
      outstanding.set(key, (outstanding.get(key) ?? 0) + 1);
      try {
        const result = await pools.invoke(key, input, options);
        const { preprocessMs, inferMs, postprocessMs } = result.timings;
        callMs.set(key, preprocessMs + inferMs / result.batchSize + postprocessMs);
        return result;
      } finally {
        outstanding.set(key, (outstanding.get(key) ?? 1) - 1);
      }
    },
  };
}

async function redisQueueing({ config, registry, logger }: QueueingOptions, url: string): Promise<Queueing> {
  const { AsyncCalls, createBullMqQueue, RedisLink } = await loadRedisQueue();
  const { prefix } = config.redis;
  const link = new RedisLink({ url, prefix });
  const files = new FunctionFiles(registry, logger);
  let ownUrl = '';
  const overflow = createBullMqQueue({
    link,
    hostUrl: () => config.queue.hostUrl ?? ownUrl,
    manifestOf: (key) => files.manifestOf(key),
    manifests: () => files.manifests(),
    payloadBytesMax: config.queue.payloadBytesMax,
    outstandingMax: config.queue.outstandingMax,
    log: logger,
  });
  let run: CallRunner | undefined;
  let stopped = false;
  const calls = new AsyncCalls({
    link,
    run: async (call, signal) => {
      if (run === undefined) throw new Error('a call ran before the host was ready');
      return await run(call, signal);
    },
    concurrency: config.async.concurrency,
    keepMs: config.async.keepMs,
    waitingMax: config.async.waitingMax,
    payloadBytesMax: config.queue.payloadBytesMax,
    callback: {
      attemptsMax: config.async.callbackAttempts,
      backoffMs: config.async.callbackBackoffMs,
      timeoutMs: config.async.callbackTimeoutMs,
    },
    log: logger,
  });
  const { address } = link;
  const sayGone = (reason: string): void => {
    const says = 'Redis is gone: calls run on this machine alone, and no asynchronous calls are accepted';
    logger.warn({ redis: address, reason }, says);
  };
  link.onChange((health) => {
    if (health.status === 'up') {
      logger.info({ redis: address }, 'Redis answers: workers and asynchronous calls are available');
      void warnOfLoss(link, logger);
    } else {
      sayGone(health.reason);
    }
  });
  return {
    overflow,
    remote: true,
    calls,
    files,
    health: () => link.health,
    start: (listening, runner) => {
      ownUrl = reachable(listening, config.listen.host);
      run = runner;
      // Every later change is told by the link.
      link.ready(firstAnswerMs).catch(() => {
        const { health } = link;
        if (!stopped && health.status === 'down') sayGone(health.reason);
      });
      overflow.start();
      calls.start();
    },
    stop: async (graceMs) => {
      if (stopped) return;
      stopped = true;
      const endMs = performance.now() + graceMs;
      await calls.stop(graceMs);
      await overflow.stop(Math.max(0, endMs - performance.now()));
      link.close();
    },
  };
}

/** An address that listens on everything is none that others can use. */
function reachable(url: string, listenHost: string): string {
  if (listenHost !== '0.0.0.0' && listenHost !== '::') return url;
  return `http://${hostname()}:${new URL(url).port}`;
}

/** Says when accepted calls would not survive a restart of Redis, or could be evicted by it. */
async function warnOfLoss(link: RedisLink, logger: Logger): Promise<void> {
  try {
    const [, appendonly] = await configOf(link, 'appendonly');
    if (appendonly === 'no') {
      logger.warn('Redis runs without append-only files: accepted calls do not survive its restart (appendonly yes)');
    }
    const [, policy] = await configOf(link, 'maxmemory-policy');
    if (policy !== undefined && policy !== 'noeviction') {
      logger.warn({ policy }, 'Redis may evict accepted calls when its memory is full (maxmemory-policy noeviction)');
    }
  } catch {
    // Managed servers do not allow CONFIG; then nothing is known.
  }
}

async function configOf(link: RedisLink, name: string): Promise<string[]> {
  // Pairs, or an object with the newer protocol.
  const reply: unknown = await link.commands.config('GET', name);
  return Array.isArray(reply)
    ? reply.map(String)
    : Object.entries(reply as object)
        .flat()
        .map(String);
}
