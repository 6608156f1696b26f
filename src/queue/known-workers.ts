/**
 * The workers as a host knows them: what each said last, what it was given since, and the BullMQ queue that leads to
 * it.
 */
import type { Queue } from 'bullmq';
import { openQueue } from './job-queues.ts';
import { manifestBytes, type FunctionManifest } from './manifest.ts';
import { keys, workerQueue, type OverflowJob, type WorkerBeat } from './names.ts';
import { predictedMs, shareMs } from './predict.ts';
import type { RedisLink } from './redis-link.ts';
import type { FunctionCapacity, WorkerState } from './types.ts';
import { getOrMake, type Log } from '../tools/index.ts';

/** Assumed rate at which a worker fetches a model that it does not have. */
const fetchBytesPerMs = 50_000;

export interface BestWorker {
  readonly worker: WorkerState;
  readonly ms: number;
  readonly capacity: FunctionCapacity;
  readonly fetchMs: number;
}

export class KnownWorkers {
  readonly #link: RedisLink;
  readonly #log: Log;
  readonly #onLost: ((name: string) => void) | undefined;
  readonly #workers = new Map<string, WorkerBeat>();
  /** Milliseconds of work given to a worker, less work taken from it, since its latest report. */
  readonly #sinceBeatMs = new Map<string, number>();
  readonly #queues = new Map<string, Queue<OverflowJob>>();

  constructor(link: RedisLink, log: Log, onLost?: (name: string) => void) {
    this.#link = link;
    this.#log = log;
    this.#onLost = onLost;
  }

  get count(): number {
    return this.#workers.size;
  }

  all(): readonly WorkerState[] {
    return [...this.#workers.values()];
  }

  get(id: string): WorkerState | undefined {
    return this.#workers.get(id);
  }

  /** The worker that would answer first, as far as known. */
  best(manifest: FunctionManifest, except: ReadonlySet<string>, overheadMs: number): BestWorker | undefined {
    let best: BestWorker | undefined;
    for (const worker of this.#workers.values()) {
      const capacity = worker.functions[manifest.revision];
      if (capacity === undefined || worker.draining || except.has(worker.id)) continue;
      const backlogMs = worker.backlogMs + (this.#sinceBeatMs.get(worker.id) ?? 0);
      const fetchMs = capacity.held ? 0 : manifestBytes(manifest) / fetchBytesPerMs;
      const ms = predictedMs(capacity, backlogMs, overheadMs) + fetchMs;
      if (best === undefined || ms < best.ms) best = { worker, ms, capacity, fetchMs };
    }
    return best;
  }

  /** Adds an invocation of a function to its worker's work, or subtracts it. */
  lengthen({ id, functions, cores }: WorkerState, revision: string | undefined, sign: 1 | -1): void {
    const capacity = revision === undefined ? undefined : functions[revision];
    if (capacity === undefined) return;
    this.#sinceBeatMs.set(id, (this.#sinceBeatMs.get(id) ?? 0) + sign * shareMs(capacity, cores));
  }

  queueTo(workerId: string): Queue<OverflowJob> {
    return getOrMake(this.#queues, workerId, () => {
      const made = openQueue<OverflowJob, unknown>(this.#link, workerQueue(workerId));
      // A queue that could not begin is of no more use.
      return made.on('error', () => {
        if (this.#queues.get(workerId) === made) this.#queues.delete(workerId);
      });
    });
  }

  /** The next job opens a new queue. */
  async closeQueueTo(workerId: string): Promise<void> {
    const queue = this.#queues.get(workerId);
    this.#queues.delete(workerId);
    await queue?.close().catch(() => undefined);
  }

  /** Reads the workers' current reports. */
  async hear(): Promise<void> {
    const { commands } = this.#link;
    const ids = await commands.smembers(keys.workers(this.#link));
    const texts = ids.length === 0 ? [] : await commands.mget(ids.map((id) => keys.worker(this.#link, id)));
    const gone: WorkerState[] = [];
    for (const [index, id] of ids.entries()) {
      const text = texts[index];
      const known = this.#workers.get(id);
      if (text === null || text === undefined) {
        if (known !== undefined) {
          gone.push(known);
          this.#onLost?.(known.name);
        }
        this.#workers.delete(id);
        await this.#removeLeftovers(id);
        continue;
      }
      const state = JSON.parse(text) as WorkerBeat;
      if (known === undefined) {
        this.#log.info({ worker: state.name, cores: state.cores }, 'a worker has joined');
      }
      // The new report includes the work given and taken before it.
      if (known?.beat !== state.beat) this.#sinceBeatMs.set(id, 0);
      this.#workers.set(id, state);
    }
    // These took leave.
    for (const [id, worker] of this.#workers) if (!ids.includes(id)) gone.push(worker);
    for (const { id, name } of gone) {
      this.#workers.delete(id);
      this.#sinceBeatMs.delete(id);
      this.#log.info({ worker: name }, 'a worker is gone');
      await this.closeQueueTo(id);
    }
  }

  /** Redis is gone, so nothing is known any more. */
  forget(): void {
    this.#workers.clear();
    this.#sinceBeatMs.clear();
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#queues.keys(), (id) => this.closeQueueTo(id)));
  }

  /** Removes a dead worker's entries from Redis. The first host to notice does it. */
  async #removeLeftovers(workerId: string): Promise<void> {
    const removed = await this.#link.commands.srem(keys.workers(this.#link), workerId);
    if (removed === 0) return;
    await this.queueTo(workerId)
      .obliterate({ force: true })
      .catch(() => undefined);
  }
}
