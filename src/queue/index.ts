/** Overflow and asynchronous invocations: the queue that carries work to other processes, and the worker that takes it. */
export * from './types.ts';
export { createInProcessQueue, type InProcessQueueOptions } from './in-process.ts';
export { createBullMqQueue, type BullMqQueueOptions, type QueueLog } from './bullmq-queue.ts';
export { manifestBytes, sealManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';
export { predictedMs, smoothed } from './predict.ts';
export { redisAddress, RedisLink, type RedisLinkOptions } from './redis-link.ts';
