/**
 * The overflow queue on Redis, on the host's side. Each worker has its own BullMQ queue: the host chooses the worker by
 * the reports that workers send twice a second, and so can predict when the answer comes.
 *
 * An invocation at a worker ends in one of these ways, whichever comes first; later events are ignored:
 *   1. its worker's answer arrives in the host's list of answers;
 *   2. its worker refuses it (it stops, or could not get the model), or is gone: the next best worker gets it, and if
 *      there is none {@link QueueError} tells the host to run it itself;
 *   3. Redis is gone: the same error, at once;
 *   4. Redis has neither its input nor its answer any more (Redis was emptied, a connection broke in between): as in 2;
 *   5. the client is gone: it is removed from the worker's queue if it still waits there;
 *   6. no answer has come when the host had to begin to be in time itself: it is taken back, unless a worker has begun it
 *      and too many have run twice already.
 */
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import { CpuError, type PoolInput } from '../cpu/index.ts';
import { errorLog } from './error-log.ts';
import {
  MemberChoice,
  reportEveryMs,
  triedMax,
  type Candidate,
  type FunctionOffer,
  type Member,
  type Membership,
} from '../fleet/index.ts';
import { manifestBytes, type FunctionManifest } from './manifest.ts';
import { JobQueues } from './job-queues.ts';
import { keys, leftoverMs, workerQueue, type OverflowJob } from './names.ts';
import { decodeAnswer, encodeInput, inputBytes, type AddressedAnswer } from './payload.ts';
import type { RedisLink } from './redis-link.ts';
import { QueueError } from './types.ts';
import type { OverflowOptions, OverflowResult, QueueState } from './types.ts';
import { doneWithin, given, smoothed, timerMsMax, type Log } from '../tools/index.ts';

export interface BullMqQueueOptions {
  readonly link: RedisLink;
  /** Workers' description of the function with this key. */
  readonly manifestOf: (key: string) => FunctionManifest | undefined;
  /** Largest input for a worker. */
  readonly payloadBytesMax: number;
  /** Limit of invocations at workers without an answer. */
  readonly outstandingMax: number;
  readonly log: Log;
  /** A worker fell silent without taking leave; its calls run elsewhere. */
  readonly onWorkerLost?: (name: string) => void;
}

interface Pending {
  readonly id: string;
  readonly key: string;
  readonly input: PoolInput;
  readonly options: OverflowOptions;
  readonly resolve: (result: OverflowResult) => void;
  readonly reject: (error: Error) => void;
  /** Workers that refused it or died with it. */
  readonly triedIds: Set<string>;
  readonly onAbort: () => void;
  takeBackTimer: NodeJS.Timeout | undefined;
  worker: Member;
  sentMs: number;
  /** When its input was first not in Redis (performance.now()): its answer is on the way, or lost. */
  missedMs: number | undefined;
}

/** At most this share of the answers may be runs of the host that a worker has begun as well. */
const doubleShareMax = 0.02;
/** Assumed rate at which a worker fetches a model that it does not have. */
const fetchBytesPerMs = 50_000;
/** Assumed round trip to a worker before any answer has been measured. */
const firstOverheadMs = 2;
/** The share of a measured round trip that is left after each report. */
const forgetfulness = 0.9;

export class OverflowQueue {
  readonly #options: BullMqQueueOptions;
  readonly #link: RedisLink;
  /** By worker. */
  readonly #queues: JobQueues<OverflowJob>;
  readonly #id = randomBytes(6).toString('hex');
  readonly #pending = new Map<string, Pending>();
  #membership: Membership | undefined;
  #choice: MemberChoice | undefined;
  readonly #answered: Record<string, number> = {};
  readonly #counts = { movedElsewhere: 0, takenBack: 0, doubleRuns: 0, lateAnswers: 0 };
  readonly #quiet: (() => void)[] = [];
  readonly #endListening: () => void;
  #answers: Redis | undefined;
  #count = 0;
  #overheadMs: number | undefined;
  #stopping = false;

  constructor(options: BullMqQueueOptions) {
    this.#options = options;
    this.#link = options.link;
    this.#queues = new JobQueues(options.link);
    this.#endListening = this.#link.onChange((works) => {
      if (!works) this.#lost();
    });
  }

  /** Starts to send to the workers among the members, and to listen for answers. */
  start(membership: Membership): void {
    const { log, onWorkerLost } = this.#options;
    this.#membership = membership;
    this.#choice = new MemberChoice(membership);
    membership.follow({
      gone: ({ kind, name, title }, isLost) => {
        if (kind !== 'worker') return;
        void this.#queues.closeTo(workerQueue(name));
        log.info({ worker: title }, 'a worker is gone');
        if (isLost) onWorkerLost?.(title);
        for (const pending of this.#pending.values()) {
          if (pending.worker.name === name) this.#elsewhere(pending, 'it is gone');
        }
      },
      // A host's name is one of no queue.
      leftover: (name) => {
        if (!name.includes(':')) void this.#queues.remove(workerQueue(name));
      },
      spoken: async () => await this.#lookAfter(),
    });
    this.#answers = this.#link.waiting();
    void this.#listen(this.#answers);
  }

  /**
   * Sends one invocation to a worker. It is answered once, wherever and however often it ran.
   *
   * @throws QueueError if the queue could not do it, so that it may be run here instead; CpuError if it ran and
   *   failed, its deadline passed or it was cancelled, as a pool of this machine would have thrown
   */
  async submit(key: string, input: PoolInput, options: OverflowOptions = {}): Promise<OverflowResult> {
    if (this.#stopping) throw new QueueError('stopping', 'the overflow queue is stopping and takes no new work');
    if (options.signal?.aborted) throw new CpuError('cancelled', 'the client is gone');
    this.#link.check();
    const bytes = inputBytes(input);
    if (bytes > this.#options.payloadBytesMax) {
      const limit = `${this.#options.payloadBytesMax} bytes that go through Redis at most`;
      throw new QueueError('payload-too-large', `the input of ${bytes} bytes is over the ${limit}`);
    }
    if (this.#pending.size >= this.#options.outstandingMax) {
      const limit = `${this.#options.outstandingMax} invocations are with workers already`;
      throw new QueueError('queue-full', `${limit}, the limit`);
    }
    const worker = this.#best(key, new Set())?.at;
    if (worker === undefined) throw new QueueError('no-worker', `no worker takes invocations of ${key}`);
    return await new Promise<OverflowResult>((resolve, reject) => {
      const onAbort = (): void => {
        if (this.#settle(pending)) void this.#takeBack(pending);
        reject(new CpuError('cancelled', 'the client is gone'));
      };
      const id = `${this.#id}-${++this.#count}`;
      const pending: Pending = {
        id,
        key,
        input,
        options,
        resolve,
        reject,
        onAbort,
        takeBackTimer: undefined,
        worker,
        triedIds: new Set(),
        sentMs: performance.now(),
        missedMs: undefined,
      };
      this.#pending.set(id, pending);
      options.signal?.addEventListener('abort', onAbort, { once: true });
      const untilMs = (options.takeBack?.atMs ?? -Infinity) - performance.now();
      if (untilMs > 0 && untilMs <= timerMsMax)
        pending.takeBackTimer = setTimeout(() => void this.#takeBackIfBetter(pending), untilMs);
      void this.#send(pending);
    });
  }

  /** The worker that would answer first; undefined if none takes the function. Cheap: on the path of each request. */
  offer(key: string): Candidate | undefined {
    return this.#stopping || !this.#link.works ? undefined : this.#best(key, new Set());
  }

  /** Latest measured round trip in milliseconds; undefined before the first. */
  get roundTripMs(): number | undefined {
    return this.#overheadMs;
  }

  /** The current workers, none while Redis is away. Reading them is never a use. */
  workers(): readonly Member[] {
    return (this.#link.works && this.#membership?.others('worker')) || [];
  }

  /** What a worker offers, by the revision under which it knows a function. */
  offersOf({ name }: Member): Iterable<readonly [revision: string, offer: FunctionOffer]> {
    return this.#membership?.offers.by(name) ?? [];
  }

  state(): QueueState {
    return { outstanding: this.#pending.size, answered: { ...this.#answered }, ...this.#counts };
  }

  /** Takes no more invocations, waits up to `graceMs` for those under way, and closes everything. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    const quiet = new Promise<void>((resolve) => {
      this.#quiet.push(resolve);
      this.#checkQuiet();
    });
    await doneWithin(graceMs, quiet);
    this.#endListening();
    for (const pending of this.#pending.values()) {
      if (this.#settle(pending)) pending.reject(new QueueError('stopping', 'the overflow queue is stopping'));
    }
    await this.#link.commands.del(keys.answers(this.#link, this.#id)).catch(() => undefined);
    await this.#queues.close();
  }

  #best(key: string, except: ReadonlySet<string>): Candidate | undefined {
    const manifest = this.#options.manifestOf(key);
    const wayMs = this.#overheadMs ?? firstOverheadMs;
    return manifest && this.#choice?.worker(manifest.revision, except, { wayMs, fetchMs: fetchMsOf(manifest) });
  }

  #noLongerAtWorker({ key, worker }: Pending): void {
    const manifest = this.#options.manifestOf(key);
    if (manifest !== undefined) this.#choice?.taken(manifest.revision, worker.name);
  }

  /** Puts the input and the job into Redis. Both go over one connection, so that the input arrives first. */
  async #send(pending: Pending): Promise<void> {
    const { key, input, options, worker } = pending;
    const manifest = this.#options.manifestOf(key);
    try {
      if (manifest === undefined) throw new QueueError('no-worker', `${key} is no longer served`);
      pending.sentMs = performance.now();
      pending.missedMs = undefined;
      this.#choice!.give(manifest.revision, worker.name, fetchMsOf(manifest));
      const jobId = jobIdOf(pending);
      const { deadlineMs, dueMs, priority } = options;
      const job: OverflowJob = {
        revision: manifest.revision,
        host: this.#id,
        ...(deadlineMs === undefined ? {} : { deadlineMs: this.#link.toShared(deadlineMs) }),
        ...(dueMs === undefined ? {} : { dueMs: this.#link.toShared(dueMs) }),
        ...given({ priority }),
      };
      const stored = this.#link.commands.set(keys.input(this.#link, jobId), encodeInput(input), 'PX', leftoverMs);
      const added = this.#queues.to(workerQueue(worker.name)).add('invoke', job, {
        jobId,
        attempts: 1,
        // Kept for a while: the answer may be looked up after the job is done.
        removeOnComplete: { age: 60, count: 1000 },
        removeOnFail: { age: 60, count: 1000 },
      });
      await Promise.all([stored, added]);
    } catch (error) {
      await this.#queues.closeTo(workerQueue(worker.name));
      if (!this.#settle(pending)) return;
      const failure = error instanceof QueueError ? error : this.#link.failure(error);
      pending.reject(failure);
    }
  }

  /** Whoever settles an invocation first answers it; later callers get false. */
  #settle(pending: Pending): boolean {
    if (!this.#pending.delete(pending.id)) return false;
    pending.options.signal?.removeEventListener('abort', pending.onAbort);
    clearTimeout(pending.takeBackTimer);
    this.#noLongerAtWorker(pending);
    this.#checkQuiet();
    return true;
  }

  /** @returns whether its worker had not taken it yet, and so never will */
  async #takeBack(pending: Pending): Promise<boolean> {
    const jobId = jobIdOf(pending);
    try {
      const removed = await this.#queues.to(workerQueue(pending.worker.name)).remove(jobId);
      await this.#link.commands.del(keys.input(this.#link, jobId));
      return removed === 1;
    } catch {
      return false; // It is running already, or Redis is gone: its answer will be ignored.
    }
  }

  async #takeBackIfBetter(pending: Pending): Promise<void> {
    if (pending.options.takeBack?.wouldBeInTime() !== true || !this.#pending.has(pending.id)) return;
    const { worker, triedIds } = pending;
    const tried = triedIds.size;
    const job = await this.#queues
      .to(workerQueue(worker.name))
      .getJobState(jobIdOf(pending))
      .catch(() => undefined);
    const answers = Object.values(this.#answered).reduce((sum, count) => sum + count, 0);
    const isWaiting = job === 'waiting' || job === 'prioritized';
    if (!isWaiting && this.#counts.doubleRuns + 1 > doubleShareMax * answers) return;
    // Another worker has it meanwhile, or its answer is here.
    if (triedIds.size !== tried || !this.#settle(pending)) return;
    this.#counts.takenBack++;
    if (!(await this.#takeBack(pending))) this.#counts.doubleRuns++;
    const text = `worker ${worker.name} had not answered when this host had to begin`;
    pending.reject(new QueueError('taken-back', text));
  }

  async #listen(connection: Redis): Promise<void> {
    const list = keys.answers(this.#link, this.#id);
    const say = errorLog(this.#options.log);
    while (!this.#stopping || this.#pending.size > 0) {
      try {
        const popped = await connection.blpopBuffer(list, 5);
        if (popped !== null) this.#answer(decodeAnswer(popped[1]));
      } catch (error) {
        if (connection.status === 'end') return;
        if (this.#link.works) say(error, 'an answer could not be read from Redis');
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  #answer({ id, worker, answer }: AddressedAnswer): void {
    const pending = this.#pending.get(id.slice(0, id.lastIndexOf('-')));
    if (pending === undefined || (answer.kind === 'refused' && pending.worker.name !== worker)) {
      this.#counts.lateAnswers++;
      return;
    }
    if (answer.kind === 'refused') {
      this.#options.log.info({ worker: pending.worker.title, reason: answer.reason }, 'a worker refused an invocation');
      this.#elsewhere(pending, answer.reason);
      return;
    }
    const name = this.#membership?.find(worker)?.title ?? pending.worker.title;
    this.#settle(pending);
    this.#answered[name] = (this.#answered[name] ?? 0) + 1;
    if (answer.kind === 'error') {
      pending.reject(answer.error);
      return;
    }
    const { queueMs, loadMs, preprocessMs, inferMs, postprocessMs } = answer.result.timings;
    const thereMs = queueMs + loadMs + preprocessMs + inferMs + postprocessMs;
    const wayMs = Math.max(0, performance.now() - pending.sentMs - thereMs);
    // Time in the worker's Redis queue is backlog, not round trip: short measurements are believed.
    this.#overheadMs = Math.min(wayMs, smoothed(this.#overheadMs, wayMs, 0.1));
    pending.resolve({ result: answer.result, worker: name });
  }

  /** Gives an invocation to the next best worker, or back to the host. */
  #elsewhere(pending: Pending, reason: string): void {
    // Then its worker need not run it, should it still get to it.
    this.#link.commands.del(keys.input(this.#link, jobIdOf(pending))).catch(() => undefined);
    pending.triedIds.add(pending.worker.name);
    const next = pending.triedIds.size >= triedMax ? undefined : this.#best(pending.key, pending.triedIds);
    if (next === undefined) {
      this.#settle(pending);
      const text = `worker ${pending.worker.title} did not run ${pending.key} (${reason}), and no other takes it`;
      pending.reject(new QueueError('worker-gone', text));
      return;
    }
    this.#counts.movedElsewhere++;
    this.#noLongerAtWorker(pending);
    pending.worker = next.at;
    void this.#send(pending);
  }

  /** Redis is gone, and with it all answers from workers. */
  #lost(): void {
    for (const pending of this.#pending.values()) {
      if (this.#settle(pending)) pending.reject(this.#link.failure(undefined));
    }
  }

  /**
   * Keeps the inputs of invocations at workers alive. A worker removes an input in the same step that adds its answer,
   * so an input that is missing for longer than the time between two reports, while no answer waits, is lost.
   */
  async #lookAfter(): Promise<void> {
    // A once long round trip would keep every invocation away, and so never be measured again.
    if (this.#overheadMs !== undefined && this.#overheadMs > firstOverheadMs) this.#overheadMs *= forgetfulness;
    const sinceMs = performance.now() - reportEveryMs;
    const watched = [...this.#pending.values()].filter(({ sentMs }) => sentMs < sinceMs);
    if (watched.length === 0 || this.#stopping) return;
    const command = this.#link.commands.pipeline();
    const jobIds = watched.map(jobIdOf);
    for (const jobId of jobIds) command.pexpire(keys.input(this.#link, jobId), leftoverMs);
    // Read last: if an input is gone, its answer came before, and is there unless it was taken.
    command.llen(keys.answers(this.#link, this.#id));
    const replies = await command.exec();
    const answersWait = replies?.at(-1)?.[1] !== 0;
    for (const [index, pending] of watched.entries()) {
      if (this.#pending.get(pending.id) !== pending || jobIdOf(pending) !== jobIds[index]) continue;
      const isMissing = replies?.[index]?.[1] === 0;
      // A busy host lags behind with its answers; this one may be among them.
      if (isMissing && answersWait) continue;
      if (!isMissing) pending.missedMs = undefined;
      else if ((pending.missedMs ??= performance.now()) < sinceMs) this.#elsewhere(pending, 'it was lost in Redis');
    }
  }

  #checkQuiet(): void {
    if (this.#pending.size > 0) return;
    for (const resolve of this.#quiet.splice(0)) resolve();
  }
}

const fetchMsOf = (manifest: FunctionManifest): number => manifestBytes(manifest) / fetchBytesPerMs;

/** The id of the current attempt. */
function jobIdOf({ id, triedIds }: Pending): string {
  return `${id}-${triedIds.size}`;
}
