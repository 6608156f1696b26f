/** The code that talks to Redis, and needs its client and BullMQ. Only {@link loadRedisQueue} imports it. */
export { OverflowQueue } from './overflow-queue.ts';
export { probeRedis } from './redis-probe.ts';
export { isRefusal, openRedis, redisAddress, RedisLink } from './redis-link.ts';
export { RedisBroadcast } from './redis-broadcast.ts';
export { startRemoteWorker } from './worker.ts';
export { AsyncCalls } from './async-calls.ts';
