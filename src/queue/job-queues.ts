/** Queues of jobs in BullMQ, and the workers that take them. */
import { Queue, Worker, type Job, type KeepJobs, type WorkerOptions } from 'bullmq';
import { errorLog } from './error-log.ts';
import { keys } from './names.ts';
import type { RedisLink } from './redis-link.ts';
import { getOrMake, type Log } from '../tools/index.ts';

/** A host that does not renew its lock on a job for this long loses it. */
const lockMs = 5000;

export function openQueue<Data, Result>(link: RedisLink, name: string): Queue<Data, Result> {
  const queue = new Queue<Data, Result>(name, { connection: link.commands, prefix: keys.bull(link) });
  queue.on('error', () => undefined); // Each command reports its own failure.
  return queue;
}

/** Queues by name, each opened for its first job. */
export class JobQueues<Data, Result = unknown> {
  readonly #link: RedisLink;
  readonly #queues = new Map<string, Queue<Data, Result>>();
  readonly #endListening: () => void;

  constructor(link: RedisLink) {
    this.#link = link;
    // A queue that was opened while Redis went away is useless; a new one costs nothing.
    this.#endListening = link.onChange(() => void this.#closeAll());
  }

  to(name: string): Queue<Data, Result> {
    return getOrMake(this.#queues, name, () => {
      const made = openQueue<Data, Result>(this.#link, name);
      // So is one that could not begin.
      return made.on('error', () => {
        if (this.#queues.get(name) === made) this.#queues.delete(name);
      });
    });
  }

  /** The next job opens a new queue. */
  async closeTo(name: string): Promise<void> {
    const queue = this.#queues.get(name);
    this.#queues.delete(name);
    await queue?.close().catch(() => undefined);
  }

  /** Removes a queue that nobody takes from, with its jobs. */
  async remove(name: string): Promise<void> {
    await this.to(name)
      .obliterate({ force: true })
      .catch(() => undefined);
    await this.closeTo(name);
  }

  async close(): Promise<void> {
    this.#endListening();
    await this.#closeAll();
  }

  async #closeAll(): Promise<void> {
    await Promise.all(Array.from(this.#queues.keys(), (name) => this.closeTo(name)));
  }
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
