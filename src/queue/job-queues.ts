/** Queues of jobs in BullMQ, and the workers that take them. */
import { Queue, Worker, type Job, type KeepJobs, type WorkerOptions } from 'bullmq';
import { errorLog } from './error-log.ts';
import { keys } from './names.ts';
import type { RedisLink } from './redis-link.ts';
import type { Log } from '../tools/index.ts';

/** A host that does not renew its lock on a job for this long loses it. */
const lockMs = 5000;

export function openQueue<Data, Result>(link: RedisLink, name: string): Queue<Data, Result> {
  const queue = new Queue<Data, Result>(name, { connection: link.commands, prefix: keys.bull(link) });
  queue.on('error', () => undefined); // Each command reports its own failure.
  return queue;
}

/** Ended jobs are kept as long as their replies, so that lists show them. */
export function keptFor(keepMs: number): { readonly removeOnComplete: KeepJobs; readonly removeOnFail: KeepJobs } {
  const age = Math.ceil(keepMs / 1000);
  return { removeOnComplete: { age }, removeOnFail: { age } };
}

/** Begins to take jobs. */
export function startWorker<Data, Result>(
  link: RedisLink,
  name: string,
  log: Log,
  {
    run,
    ...options
  }: Pick<WorkerOptions, 'concurrency' | 'settings' | 'removeOnComplete' | 'removeOnFail'> & {
    /** @param signal aborts when the worker's `cancelJob` is called; only if `run` takes it */
    readonly run: (job: Job<Data, Result>, token: string | undefined, signal?: AbortSignal) => Promise<Result>;
  },
): Worker<Data, Result> {
  const worker = new Worker<Data, Result>(name, run, {
    prefix: keys.bull(link),
    connection: link.waiting(),
    lockDuration: lockMs,
    stalledInterval: lockMs / 2,
    // A job is lost when its host dies or hangs, which says nothing about the job.
    maxStalledCount: 1000,
    runRetryDelay: 200,
    ...options,
  });
  const say = errorLog(log);
  worker.on('error', (error) => {
    if (link.works) say(error, `the queue '${name}' reports an error`);
  });
  return worker;
}
