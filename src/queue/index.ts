/**
 * Overflow and asynchronous invocations: the queue that carries work to other processes, and the worker that runs it.
 */
import type * as RedisQueue from './redis.ts';

export * from './types.ts';
export { sealManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';
export {
  decodeAnswer,
  decodeInput,
  encodeAnswer,
  encodeInput,
  inputMessage,
  inputOf,
  resultMessage,
  resultOf,
  type InputHeader,
  type ResultHeader,
} from './payload.ts';
export type { RedisLink } from './redis-link.ts';
export {
  durableSettings,
  readRedisFacts,
  redisCost,
  redisWorks,
  type RedisTrouble,
  type RedisFacts,
  type RedisHealth,
} from './redis-health.ts';
export { parseRedisUrl, redisUrlForm } from './redis-url.ts';
export { PoolTaker } from './pool-taker.ts';
export type { RemoteTaker, RemoteWorker } from './worker.ts';
export { clientId, ownedId } from './call-ids.ts';
export * from './calls.ts';
export type { AsyncCalls } from './async-calls.ts';
export type { OverflowQueue } from './overflow-queue.ts';
export { callbackSignature } from './callback.ts';
export { callbackAllowProblem, CallbackTargets } from './callback-targets.ts';

/** The code that talks to Redis. BullMQ takes longer to load than the rest of a host, and most hosts have no Redis. */
export function loadRedisQueue(): Promise<typeof RedisQueue> {
  return import('./redis.ts');
}
