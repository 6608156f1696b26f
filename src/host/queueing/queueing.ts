/** Puts together what carries work out of this process: the overflow queue, and with Redis the asynchronous calls. */
import type { Logger } from 'pino';
import {
  CallbackTargets,
  loadRedisQueue,
  redisCost,
  redisWorks,
  type AsyncCalls,
  type CallRunner,
  type OverflowQueue as Overflow,
  type RedisHealth,
  type RedisLink,
} from '../../queue/index.ts';
import type { Membership } from '../../fleet/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { StoreBroadcast } from '../store/index.ts';
import type { Registry } from '../types.ts';
import { FunctionFiles, type FunctionFilesOptions } from './function-files.ts';
import { given } from '../../tools/index.ts';
import { WorkersPlace } from './workers-place.ts';

export interface Queueing {
  /** Leads to workers on other machines. */
  readonly overflow: Overflow;
  /** The workers, as a place of this host. */
  readonly workers: WorkersPlace;
  readonly calls: AsyncCalls;
  readonly files: FunctionFiles;
  /** Tells other hosts what this one has changed in the store. */
  readonly broadcast: StoreBroadcast;
  readonly link: RedisLink;
  /** Begins to hand out to the workers among the members, and to run; `run` runs an asynchronous call. */
  start(run: CallRunner, membership: Membership): void;
  stop(graceMs: number): Promise<void>;
  /** Ends the connections to Redis. */
  close(): void;
}

export interface QueueingOptions {
  readonly config: HostConfig;
  readonly registry: Registry;
  /** Where workers find the files of functions. */
  readonly store: FunctionFilesOptions['store'];
  readonly logger: Logger;
  readonly onWorkerLost?: (name: string) => void;
}

/** A Redis that has not answered so long after the host's start is said to be away. */
const firstAnswerMs = 2000;

/** Undefined if no Redis is configured. */
export async function createQueueing(options: QueueingOptions): Promise<Queueing | undefined> {
  const { config, registry, store, logger, onWorkerLost } = options;
  const { url, prefix } = config.redis;
  if (url === undefined) return undefined;
  const { AsyncCalls, OverflowQueue, RedisLink, RedisBroadcast } = await loadRedisQueue();
  const link = new RedisLink({ url, prefix, log: logger });
  const files = new FunctionFiles({ registry, store, logger });
  const broadcast = new RedisBroadcast(link, 'store');
  const overflow = new OverflowQueue({
    link,
    manifestOf: (key) => files.manifestOf(key),
    payloadBytesMax: config.queue.payloadBytesMax,
    outstandingMax: config.queue.outstandingMax,
    log: logger,
    ...given({ onWorkerLost }),
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
      targets: new CallbackTargets(config.async.callbackAllow),
      secret: config.async.callbackSecret,
    },
    log: logger,
  });
  const { address } = link;
  const sayGone = (health: RedisHealth): void => {
    logger.warn({ redis: address, status: health.status }, redisCost(health) ?? 'Redis is up');
  };
  link.onHealth((health, before) => {
    if (!redisWorks(health)) sayGone(health);
    else if (!redisWorks(before)) {
      logger.info({ redis: address }, 'Redis answers: workers and asynchronous calls are available');
    }
  });
  const workers = new WorkersPlace(overflow);
  const look = (): void => workers.look();
  return {
    overflow,
    workers,
    calls,
    files,
    broadcast,
    link,
    start: (runner, membership) => {
      run = runner;
      // Every later change is told by the link.
      link.ready(firstAnswerMs).catch(() => {
        if (!stopped && !link.works) sayGone(link.health);
      });
      overflow.start(membership);
      membership.follow({ heard: look, gone: look });
      link.onChange(look);
      calls.start();
    },
    stop: async (graceMs) => {
      if (stopped) return;
      stopped = true;
      const endMs = performance.now() + graceMs;
      await calls.stop(graceMs);
      await overflow.stop(Math.max(0, endMs - performance.now()));
    },
    close: () => {
      broadcast.close();
      link.close();
    },
  };
}
