/**
 * A worker: takes invocations from its BullMQ queue, has its taker run them, and puts the answers into the list of the
 * waiting host. As a member it says twice a second what it offers, and learns which functions the hosts have.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Job, Worker } from 'bullmq';
import type { Redis } from 'ioredis';
import { CpuError, type PoolInput, type PoolResult } from '../cpu/index.ts';
import { TensorError } from '../tensor/index.ts';
import { openQueue, startWorker } from './job-queues.ts';
import { Membership, type FunctionOffer, type OfferChange } from '../fleet/index.ts';
import { soundManifest, type FunctionManifest } from './manifest.ts';
import { keys, leftoverMs, workerQueue, type OverflowJob } from './names.ts';
import { decodeInput, encodeAnswer, type Answer } from './payload.ts';
import { isRefusal, refusalOf, type RedisLink } from './redis-link.ts';
import type { OverflowOptions } from './types.ts';
import { doneWithin, given, type Log } from '../tools/index.ts';

/** Runs the invocations that the queue sends: knows functions by their revision, and learns about them from hosts. */
export interface RemoteTaker {
  readonly name: string;
  readonly cores: number;
  readonly cacheBytes: number;
  readonly cacheBytesMax: number;
  /** Functions whose files it has. */
  readonly held: number;
  /** The functions that the hosts offer. */
  revisions(): readonly string[];
  learn(manifests: readonly FunctionManifest[]): void;
  /** Called before the offers are read. */
  refresh(): void;
  /** undefined: it does not take this function. */
  offer(revision: string): FunctionOffer | undefined;
  /** Its invocations that have no answer yet, and the milliseconds that it needs for them. */
  work(): { readonly outstanding: number; readonly backlogMs: number };
  /** @throws CpuError */
  run(revision: string, input: PoolInput, options: OverflowOptions): Promise<PoolResult>;
}

export interface RemoteWorkerOptions {
  readonly link: RedisLink;
  readonly taker: RemoteTaker;
  readonly log: Log;
  /** The release that this worker runs. */
  readonly version?: string;
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
  /** Invocations answered so far. */
  answered = 0;
  readonly #options: RemoteWorkerOptions;
  readonly #membership: Membership;
  #worker: Worker<OverflowJob> | undefined;
  /** For inputs and answers, so that large ones do not delay this worker's reports. */
  #payloads: Redis | undefined;
  /** Invocations in its queue that it has not taken yet. */
  #waiting = 0;
  #running = 0;
  #draining = false;
  #learning: NodeJS.Immediate | undefined;

  constructor(options: RemoteWorkerOptions) {
    this.#options = options;
    const { link, taker, log } = options;
    this.#membership = new Membership({
      link,
      report: () => ({
        kind: 'worker',
        title: taker.name,
        hostVersion: options.version ?? '',
        draining: this.#draining,
        cores: taker.cores,
        gpus: 0,
        functions: taker.held,
        cacheBytes: taker.cacheBytes,
        cacheBytesMax: taker.cacheBytesMax,
        ...this.#work(),
      }),
      offers: () => this.#offers(),
      log,
    });
    this.#membership.follow({
      // Several hosts may be heard at once.
      manifestsChanged: () => (this.#learning ??= setImmediate(() => this.#learn())),
    });
  }

  /** By which hosts address it. */
  get id(): string {
    return this.#membership.id;
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
    await this.#membership.start();
  }

  /**
   * Takes no more invocations, finishes running ones within `graceMs`, returns waiting ones. False: some were cut off.
   */
  async stop(graceMs: number): Promise<boolean> {
    this.#draining = true;
    await this.#membership.speak();
    const worker = this.#worker;
    const closed = doneWithin(
      graceMs,
      Promise.resolve(worker?.close()).catch(() => undefined),
    );
    // Its queue does not close while Redis is away; if nothing runs, there is nothing to wait for.
    const idle = this.#options.link.away().then(async () => this.#running === 0 || (await closed));
    const clean = await Promise.race([closed, idle]);
    if (this.#options.link.works) await this.#giveBack().catch(() => undefined);
    await this.#membership.leave();
    // Invocations that were cut off still run, but are not waited for; closing the link ends their connections.
    return clean;
  }

  async #take(job: Job<OverflowJob>): Promise<void> {
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

  #work(): { inFlight: number; waiting: number; backlogMs: number } {
    const { taker } = this.#options;
    const { outstanding, backlogMs } = taker.work();
    // The functions of jobs that wait in Redis become known only when they are taken: assumed to be like the running ones.
    const eachMs = outstanding === 0 ? 0 : backlogMs / outstanding;
    return {
      inFlight: outstanding + this.#waiting,
      waiting: this.#waiting,
      backlogMs: backlogMs + this.#waiting * eachMs,
    };
  }

  *#offers(): Generator<OfferChange> {
    const { link, taker } = this.#options;
    void link.commands.llen(`${keys.bull(link)}:${workerQueue(this.id)}:wait`).then(
      (waiting) => (this.#waiting = waiting),
      () => undefined, // Redis went away, which its link reports.
    );
    taker.refresh();
    for (const revision of taker.revisions()) yield [revision, taker.offer(revision) ?? null];
  }

  #learn(): void {
    this.#learning = undefined;
    const known = new Map<string, FunctionManifest>();
    for (const [revision, manifests] of this.#membership.manifests.fields()) {
      for (const manifest of manifests.values()) {
        const sound = soundManifest(manifest);
        if (sound?.revision === revision) known.set(revision, sound);
      }
    }
    this.#options.taker.learn([...known.values()]);
  }

  /** Returns the jobs that will not run here any more. */
  async #giveBack(): Promise<void> {
    const { link } = this.#options;
    const queue = openQueue<OverflowJob, void>(link, workerQueue(this.id));
    for (const job of await queue.getJobs(['waiting', 'prioritized', 'delayed'])) {
      const id = job.id ?? '';
      const answer = encodeAnswer({ id, worker: this.id, answer: { kind: 'refused', reason: 'it is stopping' } });
      await this.#put(link.commands, id, job.data.host, answer);
    }
    await queue.obliterate({ force: true });
    await queue.close();
  }
}
