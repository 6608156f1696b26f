/**
 * The other way of overflow: one queue of jobs for all workers, in partitions by function. A worker takes jobs of its own
 * partitions, as many as it has free cores, and those of others that have waited for a moment.
 */
import { createHash, randomBytes } from 'node:crypto';
import { Queue, Worker, type Job } from 'bullmq';
import type { PoolInput, PoolResult } from '../../src/cpu/index.ts';
import { decodeAnswer, decodeInput, encodeAnswer, encodeInput, type Taker } from '../../src/queue/index.ts';
import type { RedisLink } from '../../src/queue/redis-link.ts';

const partitions = 64;
/** A job that has waited for so long is taken by any worker. */
const stealAfterMs = 20;

interface SharedJob {
  readonly revision: string;
  readonly host: string;
}

const numberOf = (text: string): number => createHash('sha256').update(text).digest().readUInt32LE();
const partitionOf = (revision: string): number => numberOf(revision) % partitions;
const nameOf = (partition: number): string => `overflow-part-${partition}`;
const inputKey = (link: RedisLink, id: string): string => link.key('input', id);
const answersKey = (link: RedisLink, host: string): string => link.key('answers', host);
const prefixOf = (link: RedisLink): string => link.key('queues');

/** The host's side. */
export class SharedQueue {
  readonly #link: RedisLink;
  readonly #id = randomBytes(6).toString('hex');
  readonly #queues: Queue<SharedJob>[];
  readonly #waiting = new Map<string, (result: PoolResult) => void>();
  #count = 0;
  #isClosed = false;

  constructor(link: RedisLink) {
    this.#link = link;
    const options = { connection: link.commands, prefix: prefixOf(link) };
    this.#queues = Array.from(
      { length: partitions },
      (_, partition) => new Queue<SharedJob>(nameOf(partition), options),
    );
    void this.#listen();
  }

  async submit(revision: string, input: PoolInput): Promise<PoolResult> {
    const id = `${this.#id}-${++this.#count}`;
    const answered = new Promise<PoolResult>((resolve) => void this.#waiting.set(id, resolve));
    await Promise.all([
      this.#link.commands.set(inputKey(this.#link, id), encodeInput(input), 'PX', 120_000),
      this.#queues[partitionOf(revision)]!.add(
        'invoke',
        { revision, host: this.#id },
        { jobId: id, attempts: 1, removeOnComplete: { age: 60, count: 1000 }, removeOnFail: { age: 60, count: 1000 } },
      ),
    ]);
    return await answered;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#queues.map((queue) => queue.close()));
  }

  async #listen(): Promise<void> {
    const connection = this.#link.waiting();
    while (!this.#isClosed) {
      const popped = await connection.blpopBuffer(answersKey(this.#link, this.#id), 1).catch(() => null);
      if (popped === null) continue;
      const { id, answer } = decodeAnswer(popped[1]);
      if (answer.kind === 'result') this.#waiting.get(id)?.(answer.result);
      this.#waiting.delete(id);
    }
  }
}

/** The worker with this number, of so many. */
export class SharedWorker {
  readonly #link: RedisLink;
  readonly #taker: Taker;
  readonly #id: string;
  readonly #workers: readonly Worker<SharedJob, void>[];
  readonly #own: readonly number[];
  readonly #others: readonly number[];
  #running = 0;
  #isClosed = false;
  #wake: (() => void) | undefined;

  constructor(link: RedisLink, taker: Taker, number: number, count: number) {
    this.#link = link;
    this.#taker = taker;
    this.#id = `worker-${number}`;
    const connection = link.waiting();
    this.#workers = Array.from(
      { length: partitions },
      (_, partition) =>
        new Worker<SharedJob, void>(nameOf(partition), null, {
          connection,
          prefix: prefixOf(link),
          lockDuration: 5000,
          skipStalledCheck: true,
        }),
    );
    const all = Array.from({ length: partitions }, (_, partition) => partition);
    this.#own = all.filter((partition) => ownerOf(partition, count) === number);
    this.#others = all.filter((partition) => ownerOf(partition, count) !== number);
  }

  start(): void {
    void this.#work();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#workers.map((worker) => worker.close()));
  }

  async #work(): Promise<void> {
    const blocking = this.#link.waiting();
    const markers = this.#own.map((partition) => `${prefixOf(this.#link)}:${nameOf(partition)}:marker`);
    while (!this.#isClosed) {
      try {
        if (this.#running >= this.#taker.cores) {
          await new Promise<void>((resolve) => (this.#wake = resolve));
          continue;
        }
        if (await this.#takeFrom(await this.#waitingIn(this.#own, 0))) continue;
        if (await this.#takeFrom(await this.#waitingIn(this.#others, stealAfterMs))) continue;
        await blocking.bzpopmin(...markers, stealAfterMs / 1000);
      } catch {
        if (!this.#isClosed) await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  /** The partition with the oldest job that has waited for so long. */
  async #waitingIn(among: readonly number[], waitedMs: number): Promise<number | undefined> {
    const base = (partition: number): string => `${prefixOf(this.#link)}:${nameOf(partition)}`;
    const ids = this.#link.commands.pipeline();
    for (const partition of among) ids.lindex(`${base(partition)}:wait`, -1);
    const oldest = ((await ids.exec()) ?? []).map(([, id]) => (id as string | null) ?? undefined);
    const there = among.flatMap((partition, at) =>
      oldest[at] === undefined ? [] : [[partition, oldest[at]] as const],
    );
    if (there.length === 0) return undefined;
    const times = this.#link.commands.pipeline();
    for (const [partition, id] of there) times.hget(`${base(partition)}:${id}`, 'timestamp');
    const since = ((await times.exec()) ?? []).map(([, text]) => Number(text ?? Infinity));
    const first = Math.min(...since);
    return first <= Date.now() - waitedMs ? there[since.indexOf(first)]![0] : undefined;
  }

  async #takeFrom(partition: number | undefined): Promise<boolean> {
    if (partition === undefined) return false;
    const token = randomBytes(6).toString('hex');
    const job = (await this.#workers[partition]!.getNextJob(token, { block: false })) as Job<SharedJob> | undefined;
    if (job === undefined) return false;
    this.#running++;
    void this.#run(job, token).finally(() => {
      this.#running--;
      this.#wake?.();
    });
    return true;
  }

  async #run(job: Job<SharedJob>, token: string): Promise<void> {
    const id = job.id!;
    const bytes = await this.#link.commands.getBuffer(inputKey(this.#link, id));
    if (bytes === null) return;
    const result = await this.#taker.run(job.data.revision, decodeInput(bytes), {});
    const answer = encodeAnswer({ id, worker: this.#id, answer: { kind: 'result', result } });
    const list = answersKey(this.#link, job.data.host);
    await this.#link.commands.multi().rpush(list, answer).pexpire(list, 120_000).del(inputKey(this.#link, id)).exec();
    await job.moveToCompleted(undefined, token, false);
  }
}

/** Rendezvous: each partition has one owner, and a worker that leaves changes the owners of its own alone. */
function ownerOf(partition: number, count: number): number {
  const weights = Array.from({ length: count }, (_, worker) => numberOf(`${partition} ${worker}`));
  return weights.indexOf(Math.max(...weights));
}
