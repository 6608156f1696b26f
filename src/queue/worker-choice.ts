/**
 * Which worker a call goes to, by what the workers offer and what they were given since, and the BullMQ queues that lead
 * to them.
 */
import type { Queue } from 'bullmq';
import { answerMs, shareMs, type FunctionOffer, type Member, type Membership } from '../fleet/index.ts';
import { openQueue } from './job-queues.ts';
import { manifestBytes, type FunctionManifest } from './manifest.ts';
import { workerQueue, type OverflowJob } from './names.ts';
import type { RedisLink } from './redis-link.ts';
import { getOrMake } from '../tools/index.ts';

/** Assumed rate at which a worker fetches a model that it does not have. */
const fetchBytesPerMs = 50_000;

export interface BestWorker {
  readonly worker: Member;
  readonly ms: number;
  readonly offer: FunctionOffer;
  readonly fetchMs: number;
}

export class WorkerChoice {
  readonly #link: RedisLink;
  readonly #membership: Membership;
  /** Milliseconds of work given to a worker, less work taken from it, since its latest report. */
  readonly #givenMs = new Map<string, number>();
  readonly #queues = new Map<string, Queue<OverflowJob>>();

  constructor(link: RedisLink, membership: Membership) {
    this.#link = link;
    this.#membership = membership;
    membership.follow({
      // The new report includes the work given and taken before it.
      heard: ({ name }) => void this.#givenMs.set(name, 0),
      gone: ({ name }) => {
        this.#givenMs.delete(name);
        void this.closeQueueTo(name);
      },
      // A host's name is one of no queue.
      leftover: (name) => {
        if (!name.includes(':')) void this.#removeQueueOf(name);
      },
    });
  }

  /** The worker that would answer first, as far as known. */
  best(manifest: FunctionManifest, except: ReadonlySet<string>, overheadMs: number): BestWorker | undefined {
    let best: BestWorker | undefined;
    for (const [name, offer] of this.#membership.offers.of(manifest.revision) ?? []) {
      const worker = this.#membership.find(name);
      if (worker?.kind !== 'worker' || worker.draining || except.has(name)) continue;
      const fetchMs = offer.isHeld ? 0 : manifestBytes(manifest) / fetchBytesPerMs;
      const ms = overheadMs + fetchMs + answerMs(offer, undefined, this.#givenMs.get(name));
      if (best === undefined || ms < best.ms) best = { worker, ms, offer, fetchMs };
    }
    return best;
  }

  /** Adds an invocation of a function to its worker's work, or subtracts it. */
  lengthen({ name }: Member, revision: string | undefined, sign: 1 | -1): void {
    const offer = revision === undefined ? undefined : this.#membership.offers.of(revision)?.get(name);
    if (offer !== undefined) this.#givenMs.set(name, (this.#givenMs.get(name) ?? 0) + sign * shareMs(offer));
  }

  queueTo(name: string): Queue<OverflowJob> {
    return getOrMake(this.#queues, name, () => {
      const made = openQueue<OverflowJob, unknown>(this.#link, workerQueue(name));
      // A queue that could not begin is of no more use.
      return made.on('error', () => {
        if (this.#queues.get(name) === made) this.#queues.delete(name);
      });
    });
  }

  /** The next job opens a new queue. */
  async closeQueueTo(name: string): Promise<void> {
    const queue = this.#queues.get(name);
    this.#queues.delete(name);
    await queue?.close().catch(() => undefined);
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#queues.keys(), (name) => this.closeQueueTo(name)));
  }

  async #removeQueueOf(name: string): Promise<void> {
    const queue = openQueue<OverflowJob, unknown>(this.#link, workerQueue(name));
    await queue.obliterate({ force: true }).catch(() => undefined);
    await queue.close().catch(() => undefined);
  }
}
