/** Overflow and asynchronous invocations: the queue that carries work to other processes, and the worker that takes it. */
export * from './types.ts';
export { createInProcessQueue, type InProcessQueueOptions } from './in-process.ts';
export { createBullMqQueue, type BullMqQueueOptions, type QueueLog } from './bullmq-queue.ts';
export { manifestBytes, sealManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';
export { predictedMs, smoothed } from './predict.ts';
export { redisAddress, RedisLink, type RedisLinkOptions } from './redis-link.ts';
export { ModelCache, type HeldFunction, type ModelCacheOptions } from './model-cache.ts';
export { PoolTaker, type PoolTakerOptions } from './pool-taker.ts';
export { startRemoteWorker } from './worker.ts';
export type { HostFunctions, RemoteTaker, RemoteWorker, RemoteWorkerOptions } from './worker.ts';
export * from './calls.ts';
export { AsyncCalls, type AsyncCallsOptions } from './async-calls.ts';
export { checkCallbackUrl } from './callback.ts';
