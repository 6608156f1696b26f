/**
 * Sends replies to the callback URLs of their clients, again and again until one is accepted or the tries are used up.
 */
import { clientId } from './call-ids.ts';
import { DelayedError, type Job, type Queue, type Worker } from 'bullmq';
import type { CallStore } from './call-store.ts';
import { postCallback, type CallbackOptions } from './callback.ts';
import { keptFor, openQueue, startWorker } from './job-queues.ts';
import { Receivers } from './receivers.ts';
import type { RedisLink } from './redis-link.ts';
import type { Log } from '../tools/index.ts';

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
  /** Of the receiver's address. */
  readonly origin: string;
}

/** Callbacks that a host sends at once, and how many of them to one receiver. */
const [callbacksAtOnce, callbacksPerReceiver] = [64, 16];

export class CallbackSender {
  readonly #options: CallbackSenderOptions;
  readonly #store: CallStore;
  readonly #receivers = new Receivers(callbacksPerReceiver);
  readonly counts = { callbacksDelivered: 0, callbacksGivenUp: 0 };
  #queue: Queue<CallbackJob> | undefined;

  constructor(options: CallbackSenderOptions) {
    this.#options = options;
    this.#store = options.store;
  }

  /** Starts to send callbacks, also those of other hosts. */
  start(): Worker<CallbackJob> {
    const { link, log } = this.#options;
    return startWorker<CallbackJob, void>(link, 'callbacks', log, {
      run: async (job, token) => await this.#callBack(job, token),
      concurrency: callbacksAtOnce,
    });
  }

  /** The next callback opens a new queue. */
  dropQueue(): void {
    void this.#queue?.close().catch(() => undefined);
    this.#queue = undefined;
  }

  async ask(id: string, url: string | undefined): Promise<void> {
    if (url === undefined) return;
    const { attemptsMax: attempts, backoffMs } = this.#options.callback;
    this.#queue ??= openQueue<CallbackJob, unknown>(this.#options.link, 'callbacks');
    await this.#queue.add(
      'callback',
      { id, origin: new URL(url).origin },
      {
        jobId: `callback-${id}`,
        attempts,
        backoff: { type: 'exponential', delay: backoffMs },
        ...keptFor(this.#options.keepMs),
      },
    );
  }

  async #callBack(job: Job<CallbackJob>, token: string | undefined): Promise<void> {
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

  async #send(job: Job<CallbackJob>): Promise<void> {
    const { id } = job.data;
    const stored = await this.#store.reply(id);
    if (stored === undefined) {
      this.counts.callbacksGivenUp++;
      const reason = 'the reply was kept no longer';
      this.#options.log.warn({ callId: clientId(id), attempts: job.attemptsMade, reason }, 'a callback was given up');
      return;
    }
    if (stored.state !== 'finished' || stored.callbackUrl === undefined) return;
    const attempts = job.attemptsMade + 1;
    try {
      await postCallback(stored.callbackUrl, stored, this.#options.callback);
    } catch (error) {
      const lastError = error instanceof Error ? error.message : String(error);
      // The host that queued it may have had another limit.
      const last = attempts >= (job.opts.attempts ?? this.#options.callback.attemptsMax);
      if (last) {
        this.counts.callbacksGivenUp++;
        this.#options.log.warn({ callId: clientId(id), attempts, reason: lastError }, 'a callback was given up');
      }
      await this.#store.setCallback(id, { state: last ? 'given-up' : 'pending', attempts, lastError });
      throw error;
    }
    this.counts.callbacksDelivered++;
    await this.#store.setCallback(id, { state: 'delivered', attempts });
  }
}
