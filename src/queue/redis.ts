/** What speaks to Redis, and needs its client and BullMQ: loaded by {@link loadRedisQueue} alone. */
export { createBullMqQueue } from './bullmq-queue.ts';
export { isRefusal, openRedis, redisAddress, RedisLink } from './redis-link.ts';
export { startRemoteWorker } from './worker.ts';
export { AsyncCalls } from './async-calls.ts';
