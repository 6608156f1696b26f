/**
 * A worker: takes invocations from its BullMQ queue, has its taker run them, and puts the answers into the list of the
 * waiting host. Twice a second it reports its capacity and backlog, and reads what the hosts offer.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { CpuError } from '../cpu/index.ts';
import { TensorError } from '../tensor/index.ts';
import { openQueue, startWorker } from './job-queues.ts';
import { parseManifest, type FunctionManifest } from './manifest.ts';
import { goneAfterMs, heartbeatMs, keys, leftoverMs, workerQueue } from './names.ts';
import type { HostBeat, OverflowJob, WorkerBeat } from './names.ts';
import { decodeInput, encodeAnswer, type Answer } from './payload.ts';
import { shareMs } from './predict.ts';
import { isRefusal, refusalOf, type RedisLink } from './redis-link.ts';
import type { FunctionCapacity, Taker } from './types.ts';
import { doneWithin, given, type Log } from '../tools/index.ts';

/** A taker that knows functions by their revision, and learns about them from hosts. */
export interface RemoteTaker extends Taker {
  readonly cacheBytes: number;
  readonly cacheBytesMax: number;
  /** The functions that the hosts offer. */
  revisions(): readonly string[];
  learn(manifests: readonly FunctionManifest[]): void;
  /** Called before the capacities are read. */
  refresh(): void;
}

export interface RemoteWorkerOptions {
  readonly link: RedisLink;
  readonly taker: RemoteTaker;
  readonly log: Log;
  /** Called for every invocation that was taken. */
  readonly onTaken?: () => void;
}

/** Failures that say nothing about the invocation: another place may run it. */
const refusals: ReadonlySet<string> = new Set(['stopping', 'queue-full', 'unknown-function', 'model-load-failed']);
/** Redis takes no longer value; it closes the connection on which one comes. */
const answerBytesMax = 512 * 2 ** 20;
/** Pauses between tries to deliver an answer. */
const [firstPauseMs, pauseMsMax] = [20, 1000];

export async function startRemoteWorker(options: RemoteWorkerOptions): Promise<RemoteWorker> {
  const worker = new RemoteWorker(options);
  await worker.start();
  return worker;
}

export class RemoteWorker {
  readonly id = randomBytes(6).toString('hex');
  /** Invocations answered so far. */
  answered = 0;
  readonly #options: RemoteWorkerOptions;
  readonly #startedAtMs = Date.now();
  readonly #hosts = new Map<string, { generation: number; manifests: readonly FunctionManifest[] }>();
  #worker: Worker<OverflowJob> | undefined;
  /** For inputs and answers, so that large ones do not delay this worker's heartbeats. */
  #payloads: Redis | undefined;
  #timer: NodeJS.Timeout | undefined;
  #beat = 0;
  #beating: Promise<void> | undefined;
  #waiting = 0;
  #running = 0;
  #draining = false;

  constructor(options: RemoteWorkerOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { link, taker, log } = this.#options;
    this.#payloads = link.waiting();
    this.#worker = startWorker<OverflowJob, void>(link, workerQueue(this.id), log, {
      // What its host had run elsewhere meanwhile has no input any more, however often it is given out.
      run: async (job) => await this.#take(job),
      // Beyond what runs: the taker orders what waits, and finds the next one lying ready.
      concurrency: Math.max(4, 4 * taker.cores),
      removeOnComplete: { age: 60, count: 1000 },
      removeOnFail: { age: 60, count: 1000 },
    });
    link.onChange((works) => {
      if (works) {
        // Redis may have come back empty.
        this.#hosts.clear();
        void this.#speak();
      }
    });
    await this.#speak();
    this.#timer = setInterval(() => void this.#speak(), heartbeatMs);
  }

  /**
   * Takes no more invocations, finishes running ones within `graceMs`, returns waiting ones. False: some were cut off.
   */
  async stop(graceMs: number): Promise<boolean> {
    this.#draining = true;
    clearInterval(this.#timer);
    await this.#beating;
    await this.#speak();
    // A drain may last longer than a heartbeat is kept.
    this.#timer = setInterval(() => void this.#speak(), heartbeatMs);
    const worker = this.#worker;
    const closed = doneWithin(
      graceMs,
      Promise.resolve(worker?.close()).catch(() => undefined),
    );
    // Its queue does not close while Redis is away; if nothing runs, there is nothing to wait for.
    const idle = this.#options.link.away().then(async () => this.#running === 0 || (await closed));
    const clean = await Promise.race([closed, idle]);
    clearInterval(this.#timer);
    await this.#beating;
    if (this.#options.link.works) await this.#leave().catch(() => undefined);
    // Invocations that were cut off still run, but are not waited for; closing the link ends their connections.
    return clean;
  }

  async #take(job: Job<OverflowJob>): Promise<void> {
    this.#options.onTaken?.();
    const id = job.id ?? '';
    this.#running++;
    try {
      const answer = await this.#answer(id, job.data);
      await this.#reply(id, job.data.host, answer);
      this.answered++;
    } finally {
      this.#running--;
    }
  }

  async #answer(id: string, { revision, deadlineMs, dueMs, priority }: OverflowJob): Promise<Answer> {
    const { link, taker } = this.#options;
    try {
      const bytes = await this.#payloads?.getBuffer(keys.input(link, id));
      if (bytes === null || bytes === undefined) return { kind: 'refused', reason: 'its input is no longer in Redis' };
      const result = await taker.run(revision, decodeInput(bytes), {
        ...(deadlineMs === undefined ? {} : { deadlineMs: link.fromShared(deadlineMs) }),
        ...(dueMs === undefined ? {} : { dueMs: link.fromShared(dueMs) }),
        ...given({ priority }),
      });
      return { kind: 'result', result };
    } catch (error) {
      if (error instanceof CpuError && !refusals.has(error.code)) return { kind: 'error', error };
      if (error instanceof TensorError) return { kind: 'refused', reason: `its input is damaged: ${error.message}` };
      return { kind: 'refused', reason: error instanceof Error ? error.message : String(error) };
    }
  }

  /** Delivers an answer, again until Redis has it: its host sees that this worker lives, and would wait. */
  async #reply(id: string, host: string, answer: Answer): Promise<void> {
    let bytes = encodeAnswer({ id, worker: this.id, answer });
    const refuse = (reason: string): void => {
      bytes = encodeAnswer({ id, worker: this.id, answer: { kind: 'refused', reason } });
    };
    if (bytes.byteLength > answerBytesMax) refuse(`its answer of ${bytes.byteLength} bytes is too large for Redis`);
    const untilMs = performance.now() + leftoverMs;
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, pauseMsMax)) {
      try {
        await this.#put(this.#payloads ?? this.#options.link.commands, id, host, bytes);
        return;
      } catch (error) {
        if (this.#payloads?.status === 'end' || performance.now() > untilMs) throw error;
        if (isRefusal(error)) refuse(`Redis did not take its answer: ${refusalOf(error)}`);
      }
      await delay(pauseMs);
    }
  }

  async #put(connection: Redis, id: string, host: string, answer: Buffer): Promise<void> {
    const { link } = this.#options;
    const list = keys.answers(link, host);
    await connection
      .multi()
      .rpush(list, answer)
      // The host may be gone.
      .pexpire(list, leftoverMs)
      .del(keys.input(link, id))
      .exec();
  }

  async #speak(): Promise<void> {
    this.#beating ??= this.#exchange()
      .catch(() => undefined) // Redis went away, which its connection reports; or the next heartbeat comes soon.
      .finally(() => {
        this.#beating = undefined;
      });
    await this.#beating;
  }

  async #exchange(): Promise<void> {
    const { link } = this.#options;
    if (!link.works) return;
    await this.#hear();
    this.#waiting = await link.commands.llen(`${keys.bull(link)}:${workerQueue(this.id)}:wait`);
    await link.commands
      .multi()
      .sadd(keys.workers(link), this.id)
      .set(keys.worker(link, this.id), JSON.stringify(this.#state()), 'PX', goneAfterMs)
      .exec();
  }

  #state(): WorkerBeat {
    const { taker } = this.#options;
    taker.refresh();
    const functions: Record<string, FunctionCapacity> = {};
    let outstanding = 0;
    let backlogMs = 0;
    let longestMs = 0;
    for (const revision of taker.revisions()) {
      const capacity = taker.capacity(revision);
      if (capacity === undefined) continue;
      functions[revision] = capacity;
      outstanding += capacity.outstanding;
      backlogMs += capacity.outstanding * shareMs(capacity, taker.cores);
      if (capacity.outstanding > 0) longestMs = Math.max(longestMs, shareMs(capacity, taker.cores));
    }
    return {
      id: this.id,
      name: taker.name,
      cores: taker.cores,
      startedAtMs: this.#startedAtMs,
      draining: this.#draining,
      outstanding: outstanding + this.#waiting,
      // The functions of jobs that wait in Redis become known only when they are taken: assumed to be like the running
      // ones.
      backlogMs: backlogMs + this.#waiting * longestMs,
      cacheBytes: taker.cacheBytes,
      cacheBytesMax: taker.cacheBytesMax,
      functions,
      beat: ++this.#beat,
    };
  }

  async #hear(): Promise<void> {
    const { link, taker } = this.#options;
    const { commands } = link;
    const ids = await commands.smembers(keys.hosts(link));
    const texts = ids.length === 0 ? [] : await commands.mget(ids.map((id) => keys.host(link, id)));
    let changed = false;
    for (const id of this.#hosts.keys()) {
      if (!ids.includes(id)) changed = this.#hosts.delete(id) || changed;
    }
    for (const [index, id] of ids.entries()) {
      const text = texts[index];
      if (text === null || text === undefined) {
        await commands.srem(keys.hosts(link), id);
        changed = this.#hosts.delete(id) || changed;
        continue;
      }
      const { generation } = JSON.parse(text) as HostBeat;
      if (this.#hosts.get(id)?.generation === generation) continue;
      const written = Object.values(await commands.hgetall(keys.functions(link, id)));
      const manifests = written.flatMap((each) => parseManifest(each) ?? []);
      this.#hosts.set(id, { generation, manifests });
      changed = true;
    }
    if (changed) taker.learn([...this.#hosts.values()].flatMap(({ manifests }) => manifests));
  }

  /** Returns the jobs that will not run here any more, and removes the worker's name. */
  async #leave(): Promise<void> {
    const { link } = this.#options;
    const queue = openQueue<OverflowJob, void>(link, workerQueue(this.id));
    for (const job of await queue.getJobs(['waiting', 'prioritized', 'delayed'])) {
      const id = job.id ?? '';
      const answer = encodeAnswer({ id, worker: this.id, answer: { kind: 'refused', reason: 'it is stopping' } });
      await this.#put(link.commands, id, job.data.host, answer);
    }
    await link.commands.multi().srem(keys.workers(link), this.id).del(keys.worker(link, this.id)).exec();
    await queue.obliterate({ force: true });
    await queue.close();
  }
}
