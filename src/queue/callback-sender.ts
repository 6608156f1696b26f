/**
 * Sends replies to the callback URLs of their clients, again and again until one is accepted or the tries are used up.
 * BullMQ counts the tries and keeps what became of them.
 */
import { clientId } from './call-ids.ts';
import { DelayedError, UnrecoverableError, type Job, type Worker } from 'bullmq';
import type { CallStore } from './call-store.ts';
import { postCallback, type CallbackOptions } from './callback.ts';
import { JobQueues, keptFor, startWorker } from './job-queues.ts';
import { Receivers } from './receivers.ts';
import type { RedisLink } from './redis-link.ts';
import { given, type Log } from '../tools/index.ts';
import type { CallbackState } from './calls.ts';

export interface CallbackSenderOptions {
  readonly link: RedisLink;
  readonly store: CallStore;
  /** How long replies are kept. */
  readonly keepMs: number;
  readonly callback: CallbackOptions & { readonly attemptsMax: number; readonly backoffMs: number };
  readonly log: Log;
}

interface CallbackJob {
  readonly id: string;
  /** Scheme, host and port of the receiver. */
  readonly origin: string;
}

const jobOf = (id: string): string => `callback-${id}`;

/** Callbacks that a host sends at once, and how many of them to one receiver. */
const [callbacksAtOnce, callbacksPerReceiver] = [64, 16];

export class CallbackSender {
  readonly #options: CallbackSenderOptions;
  readonly #store: CallStore;
  readonly #receivers = new Receivers(callbacksPerReceiver);
  readonly counts = { callbacksDelivered: 0, callbacksGivenUp: 0 };
  readonly #queues: JobQueues<CallbackJob, void>;

  constructor(options: CallbackSenderOptions) {
    this.#options = options;
    this.#store = options.store;
    this.#queues = new JobQueues(options.link);
  }

  /** Starts to send callbacks, also those of other hosts. */
  start(): Worker<CallbackJob, void> {
    const { link, log } = this.#options;
    return startWorker<CallbackJob, void>(link, 'callbacks', log, {
      run: async (job, token) => await this.#callBack(job, token),
      concurrency: callbacksAtOnce,
    });
  }

  async close(): Promise<void> {
    await this.#queues.close();
  }

  async ask(id: string, url: string | undefined): Promise<void> {
    if (url === undefined) return;
    const { attemptsMax: attempts, backoffMs } = this.#options.callback;
    await this.#queues.to('callbacks').add(
      'callback',
      { id, origin: new URL(url).origin },
      {
        jobId: jobOf(id),
        attempts,
        backoff: { type: 'exponential', delay: backoffMs },
        ...keptFor(this.#options.keepMs),
      },
    );
  }

  /** @param url undefined: the client wants none */
  async stateOf(id: string, url: string | undefined): Promise<CallbackState | undefined> {
    if (url === undefined) return undefined;
    const job = await this.#queues.to('callbacks').getJob(jobOf(id));
    if (job === undefined) return { state: 'pending', attempts: 0 };
    const { attemptsMade: attempts, failedReason: lastError, finishedOn } = job;
    if (finishedOn === undefined) return { state: 'pending', attempts, ...given({ lastError }) };
    return (await job.isFailed()) ? { state: 'given-up', attempts, lastError } : { state: 'delivered', attempts };
  }

  async #callBack(job: Job<CallbackJob, void>, token: string | undefined): Promise<void> {
    const turn = this.#receivers.begin(job.data.origin, performance.now());
    if ('putOffMs' in turn) {
      await job.moveToDelayed(Date.now() + turn.putOffMs, token);
      throw new DelayedError(); // It was no try.
    }
    try {
      await this.#send(job);
    } finally {
      turn.end(performance.now());
    }
  }

  async #send(job: Job<CallbackJob, void>): Promise<void> {
    const stored = await this.#store.reply(job.data.id);
    if (stored?.state !== 'finished' || stored.callbackUrl === undefined) {
      throw new UnrecoverableError(this.#givenUp(job, 'the reply was kept no longer'));
    }
    try {
      await postCallback(stored.callbackUrl, stored, this.#options.callback);
    } catch (error) {
      // The host that queued it may have had another limit.
      const isLast = job.attemptsMade + 1 >= (job.opts.attempts ?? this.#options.callback.attemptsMax);
      if (isLast) this.#givenUp(job, error instanceof Error ? error.message : String(error));
      throw error;
    }
    this.counts.callbacksDelivered++;
  }

  #givenUp({ data, attemptsMade }: Job<CallbackJob>, reason: string): string {
    this.counts.callbacksGivenUp++;
    const fields = { callId: clientId(data.id), attempts: attemptsMade + 1, reason };
    this.#options.log.warn(fields, 'a callback was given up');
    return reason;
  }
}
