/**
 * Which worker a call goes to, by what the workers offer and what they were given since, and the BullMQ queues that lead
 * to them.
 */
import type { Queue } from 'bullmq';
import { answerMs, reportEveryMs, shareMs, type FunctionOffer, type Member, type Membership } from '../fleet/index.ts';
import { openQueue } from './job-queues.ts';
import { manifestBytes, type FunctionManifest } from './manifest.ts';
import { workerQueue, type OverflowJob } from './names.ts';
import type { RedisLink } from './redis-link.ts';
import { hashText, rankScore } from '../schedule/index.ts';
import { getOrMake } from '../tools/index.ts';

/** Assumed rate at which a worker fetches a model that it does not have. */
const fetchBytesPerMs = 50_000;
/** Reports tell a prediction anew when it has changed by a quarter, so that closer ones are equal. */
const equalShare = 0.25;
/** A report says what was so when it was written; the next one is written, and read, an interval later each. */
const reportedAfterMs = 2 * reportEveryMs;

export interface BestWorker {
  readonly worker: Member;
  readonly ms: number;
  readonly offer: FunctionOffer;
  /** Part of `ms` until the function could run there: starting, and fetching the model. */
  readonly startMs: number;
}

/** What this host gave a worker that the worker's latest report does not know of. */
interface Given {
  /** Milliseconds of work given to it, less work taken from it. */
  ms: number;
  /** Functions that it had to start for a call of this host. */
  readonly starts: Map<string, { readonly atMs: number; leftMs: number }>;
}

export class WorkerChoice {
  readonly #link: RedisLink;
  readonly #membership: Membership;
  readonly #given = new Map<string, Given>();
  readonly #queues = new Map<string, Queue<OverflowJob>>();

  constructor(link: RedisLink, membership: Membership) {
    this.#link = link;
    this.#membership = membership;
    membership.follow({
      heard: ({ name }) => this.#heard(name),
      gone: ({ name }) => {
        this.#given.delete(name);
        void this.closeQueueTo(name);
      },
      // A host's name is one of no queue.
      leftover: (name) => {
        if (!name.includes(':')) void this.#removeQueueOf(name);
      },
    });
  }

  /**
   * The worker that would answer first, as far as known; a start delays the worker's other calls as well, and so counts
   * twice. Of workers that are equal the function's home gets the call, so that functions are divided over the workers
   * instead of being started at each, or all at one.
   */
  best(manifest: FunctionManifest, except: ReadonlySet<string>, overheadMs: number): BestWorker | undefined {
    let best: (BestWorker & { readonly costMs: number }) | undefined;
    const scoreOf = ({ name, cores }: Member): number => rankScore(hashText(manifest.revision), hashText(name), cores);
    for (const [name, offer] of this.#membership.offers.of(manifest.revision) ?? []) {
      const worker = this.#membership.find(name);
      if (worker?.kind !== 'worker' || worker.draining || except.has(name)) continue;
      const { ms: givenMs = 0, starts } = this.#given.get(name) ?? {};
      const own = starts?.get(manifest.revision);
      const reportedMs = this.#startMs(manifest, offer);
      const startMs = own?.leftMs ?? reportedMs;
      let ms = overheadMs + answerMs(offer, undefined, givenMs) - reportedMs + startMs;
      if (!offer.isHeld) ms += fetchMsOf(manifest);
      if (offer.ms === undefined) ms += worker.backlogMs;
      for (const other of starts?.values() ?? []) if (other !== own) ms += other.leftMs;
      const costMs = ms + (own === undefined ? startMs : 0);
      const leadMs = best === undefined ? Infinity : best.costMs - costMs;
      const isEqual = Math.abs(leadMs) <= equalShare * Math.min(costMs, best?.costMs ?? 0);
      if (isEqual ? scoreOf(worker) > scoreOf(best!.worker) : leadMs > 0) best = { worker, ms, costMs, offer, startMs };
    }
    return best;
  }

  /** Adds an invocation of a function to its worker's work, or subtracts it. */
  lengthen({ name }: Member, manifest: FunctionManifest | undefined, sign: 1 | -1): void {
    const offer = manifest && this.#membership.offers.of(manifest.revision)?.get(name);
    if (offer === undefined) return;
    const given = getOrMake(this.#given, name, (): Given => ({ ms: 0, starts: new Map() }));
    given.ms += sign * shareMs(offer);
    const start = given.starts.get(manifest!.revision);
    // Answered, it has started.
    if (start !== undefined && sign < 0) start.leftMs = 0;
    const startMs = this.#startMs(manifest!, offer);
    if (start !== undefined || sign < 0 || startMs === 0) return;
    given.starts.set(manifest!.revision, { atMs: performance.now(), leftMs: startMs });
  }

  #heard(name: string): void {
    const given = this.#given.get(name);
    if (given === undefined) return;
    // The new report includes the work given and taken before it.
    given.ms = 0;
    const toldMs = performance.now() - reportedAfterMs;
    for (const [revision, { atMs }] of given.starts) {
      const isStarted = this.#membership.offers.of(revision)?.get(name)?.startMs === 0;
      if (isStarted || atMs < toldMs) given.starts.delete(revision);
    }
  }

  /** Milliseconds until the function could run there, as reported: fetching its model, and starting. */
  #startMs(manifest: FunctionManifest, { isHeld, startMs = 0 }: FunctionOffer): number {
    return startMs + (isHeld ? 0 : fetchMsOf(manifest));
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

const fetchMsOf = (manifest: FunctionManifest): number => manifestBytes(manifest) / fetchBytesPerMs;
