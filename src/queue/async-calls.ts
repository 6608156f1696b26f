/**
 * Asynchronous calls: accepted into Redis and run by whichever host takes them. Their replies are kept for a while and
 * sent to the callback URL if there is one. BullMQ keeps order, state and tries, cancels runs, and notices hosts that die
 * while running a call. Beside its job a call has its content, and at its end the reply: whoever writes that first, a run
 * or a cancellation, ends the call, so that a run that a dead host had begun cannot answer it a second time.
 *
 *     accept -> [waiting] -> [running] -> reply kept -> callback queue -> delivered | given up
 *                  ^------------+ host died, or the call must be tried again
 */
import type { Job, Queue, Worker } from 'bullmq';
import { CallStore, type StoredCall, type StoredReply } from './call-store.ts';
import { CallAgain, errorReply } from './calls.ts';
import type {
  AcceptedCall,
  AcceptOutcome,
  CallListing,
  CallReply,
  CallRunner,
  CallStatus,
  CancelOutcome,
} from './calls.ts';
import { CallbackSender, type CallbackSenderOptions } from './callback-sender.ts';
import { JobQueues, keptFor, startWorker } from './job-queues.ts';
import { isRefusal } from './redis-link.ts';
import { RedisBroadcast } from './redis-broadcast.ts';
import { QueueError } from './types.ts';
import { doneWithin } from '../tools/index.ts';

export interface AsyncCallsOptions extends Omit<CallbackSenderOptions, 'store'> {
  readonly run: CallRunner;
  /** Calls that run at the same time on this host. */
  readonly concurrency: number;
  /** Limit of waiting calls; more are refused with {@link QueueError} `queue-full`. */
  readonly waitingMax: number;
  /** Largest body of a call. */
  readonly payloadBytesMax: number;
}

type CallJob = Pick<AcceptedCall, 'id' | 'functionName' | 'acceptedAtMs'>;

/** What BullMQ stores about a finished call. */
interface CallEnd {
  /** Undefined: there is no reply. */
  readonly status: number | undefined;
  readonly isCancelled?: boolean;
}

/**
 * A call that cannot run now is tried this often, with growing pauses up to {@link againMsMax}: about a quarter of an
 * hour in all.
 */
const attemptsMax = 100;
const againMsMax = 10_000;
/** Redis takes no longer value; some of it is the header. */
const replyBytesMax = 512 * 2 ** 20 - 64 * 1024;

const jobOf = (id: string): string => `call-${id}`;

export class AsyncCalls {
  readonly #options: AsyncCallsOptions;
  readonly #store: CallStore;
  readonly #callbacks: CallbackSender;
  /** Ids of cancelled calls, for the host that runs them. */
  readonly #cancellations: RedisBroadcast;
  readonly #queues: JobQueues<CallJob, CallEnd>;
  #workers: readonly Worker[] = [];
  readonly #counts = {
    accepted: 0,
    finished: 0,
    cancelled: 0,
    /** Runs whose reply was dropped, because the call already had one or was cancelled. */
    dropped: 0,
  };
  #stopping = false;

  constructor(options: AsyncCallsOptions) {
    this.#options = options;
    this.#store = new CallStore(options.link, options.keepMs);
    this.#callbacks = new CallbackSender({ ...options, store: this.#store });
    this.#cancellations = new RedisBroadcast(options.link, 'cancel');
    this.#queues = new JobQueues(options.link);
  }

  get counts() {
    return { ...this.#counts, ...this.#callbacks.counts };
  }

  /** Starts to run calls, and to send replies to their callbacks. */
  start(): void {
    const { link, concurrency, log } = this.#options;
    const calls = startWorker<CallJob, CallEnd>(link, 'calls', log, {
      run: async (job, _token, signal) => await this.#run(job, signal),
      concurrency,
      settings: { backoffStrategy: (made: number) => Math.min(againMsMax, 100 * 2 ** Math.min(made, 10)) },
    });
    this.#workers = [calls, this.#callbacks.start()];
    this.#cancellations.follow((id) => this.#giveUpRun(id));
  }

  /**
   * Accepts a call. Once this resolves, Redis has it.
   *
   * @throws QueueError 'unavailable' | 'payload-too-large' | 'queue-full' | 'stopping'
   */
  async accept(call: AcceptedCall): Promise<AcceptOutcome> {
    if (this.#stopping) throw new QueueError('stopping', 'the host is shutting down and takes no new calls');
    const { payloadBytesMax, waitingMax } = this.#options;
    if (call.body.byteLength > payloadBytesMax) {
      const limit = `${payloadBytesMax} bytes that go through Redis at most`;
      throw new QueueError('payload-too-large', `the body of ${call.body.byteLength} bytes is over the ${limit}`);
    }
    return await this.#withRedis(async () => {
      const { queue } = this;
      if ((await queue.getWaitingCount()) >= waitingMax) {
        throw new QueueError('queue-full', `${waitingMax} asynchronous calls wait already, which is the limit`);
      }
      const put = await this.#store.put(call);
      if (put === 'other') return 'conflict';
      const { id, functionName, acceptedAtMs } = call;
      let accepted = put === 'put';
      // BullMQ keeps an ended job until another one ends, and takes none of the same id meanwhile.
      if (accepted) await queue.remove(jobOf(call.id));
      // If this is the same call again, its first acceptance may have stopped before the job was added.
      if (put === 'put' || (await this.#store.call(id)) !== undefined) {
        await queue.add(
          'call',
          { id, functionName, acceptedAtMs },
          {
            jobId: jobOf(id),
            attempts: attemptsMax,
            backoff: { type: 'custom' },
            ...keptFor(this.#options.keepMs),
          },
        );
        const kept = await this.#store.keep(id);
        if (kept) this.#counts.accepted++;
        accepted ||= kept;
      }
      return accepted ? 'accepted' : 'known';
    });
  }

  /** @throws QueueError 'unavailable' */
  async status(id: string): Promise<CallStatus | undefined> {
    return await this.#withRedis(async () => {
      const reply = await this.#store.reply(id);
      if (reply !== undefined) return await this.#withCallback(reply);
      const call = await this.#store.call(id);
      if (call === undefined) {
        // It may have ended between the two reads.
        const ended = await this.#store.reply(id);
        return ended && (await this.#withCallback(ended));
      }
      const state = await this.queue.getJobState(jobOf(id));
      const { functionName, version, acceptedAtMs, callbackUrl } = call;
      const callback = callbackUrl === undefined ? undefined : ({ state: 'pending', attempts: 0 } as const);
      return {
        state: state === 'active' ? 'running' : 'waiting',
        call: { id, functionName, version, acceptedAtMs, callback },
      };
    });
  }

  async #withCallback(reply: StoredReply): Promise<CallStatus> {
    const callback = await this.#callbacks.stateOf(reply.call.id, reply.callbackUrl);
    return { ...reply, call: { ...reply.call, callback } };
  }

  /** @throws QueueError 'unavailable' */
  async cancel(id: string): Promise<CancelOutcome> {
    return await this.#withRedis(async () => {
      const call = await this.#store.call(id);
      if (call === undefined) return (await this.#store.reply(id)) === undefined ? 'unknown' : 'finished';
      if (!(await this.#end(call, { state: 'cancelled' }))) return 'finished';
      this.#counts.cancelled++;
      this.#giveUpRun(id);
      this.#cancellations.tell(id);
      // A running call is locked by its host, and cannot be removed; its reply will find that the call has ended.
      await this.queue.remove(jobOf(id)).catch(() => undefined);
      return 'cancelled';
    });
  }

  /** Aborts a call's run, if it runs on this host. */
  #giveUpRun(id: string): void {
    for (const worker of this.#workers) worker.cancelJob(jobOf(id));
  }

  /** The latest calls of each state. @throws QueueError 'unavailable' */
  async list(countMax: number): Promise<CallListing[]> {
    return await this.#withRedis(async () => {
      const { queue } = this;
      const keptSinceMs = Date.now() - this.#options.keepMs;
      // In this order a call that moves on meanwhile is found twice instead of never; its latest state counts.
      const waiting = await queue.getJobs(['waiting', 'delayed', 'prioritized'], 0, countMax - 1);
      const active = await queue.getJobs(['active'], 0, countMax - 1);
      const ended = await queue.getJobs(['completed', 'failed'], 0, countMax - 1);
      const [isActive, isEnded] = [isIn(active), isIn(ended)];
      const states = [
        ['running', active.filter((job) => !isEnded(job))],
        ['waiting', waiting.filter((job) => !isActive(job) && !isEnded(job))],
        ['finished', ended],
      ] as const;
      return states
        .flatMap(([state, jobs]) =>
          // BullMQ removes ended jobs when the next one ends; the reply may have expired long before.
          jobs
            .filter(({ finishedOn }) => finishedOn === undefined || finishedOn >= keptSinceMs)
            .map((job): CallListing => {
              const { id, functionName, acceptedAtMs } = job.data;
              // A job that has not ended has null there, although the types exclude it.
              const end = job.returnvalue as CallEnd | null | undefined;
              const shownState = end?.isCancelled === true ? 'cancelled' : state;
              return { id, functionName, state: shownState, acceptedAtMs, status: end?.status };
            }),
        )
        .slice(0, countMax);
    });
  }

  /** Calls that wait, and that run on any host. @throws QueueError 'unavailable' */
  async waiting(): Promise<{ readonly waiting: number; readonly running: number }> {
    return await this.#withRedis(async () => {
      const counts = await this.queue.getJobCounts('waiting', 'delayed', 'active');
      return { waiting: (counts['waiting'] ?? 0) + (counts['delayed'] ?? 0), running: counts['active'] ?? 0 };
    });
  }

  /** Takes no more calls and lets running ones finish within `graceMs`; the others wait for the next host. */
  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    if (this.#workers.length > 0) {
      const closed = Promise.all(this.#workers.map((worker) => worker.close())).catch(() => undefined);
      // Without Redis a worker waits for Redis to confirm finished calls; they will be run again.
      await doneWithin(graceMs, Promise.race([closed, this.#options.link.away()]));
    }
    this.#cancellations.close();
    await Promise.all([this.#queues.close(), this.#callbacks.close()]);
  }

  get queue(): Queue<CallJob, CallEnd> {
    return this.#queues.to('calls');
  }

  /** @throws QueueError 'unavailable', at once while Redis is away */
  async #withRedis<T>(work: () => Promise<T>): Promise<T> {
    this.#options.link.check();
    try {
      return await work();
    } catch (error) {
      if (error instanceof QueueError) throw error;
      throw this.#options.link.failure(error);
    }
  }

  async #run(job: Job<CallJob, CallEnd>, signal = new AbortController().signal): Promise<CallEnd> {
    const { id } = job.data;
    const earlier = await this.#store.reply(id);
    if (earlier !== undefined) {
      // The host that wrote the reply may have died before it asked for the callback.
      if (earlier.state === 'finished') await this.#callbacks.ask(id, earlier.callbackUrl);
      return endOf(earlier);
    }
    const call = await this.#store.call(id);
    if (call === undefined) return { status: undefined };
    let reply: CallReply;
    try {
      reply = await this.#options.run(call, signal);
    } catch (error) {
      // While this host is stopping, only another host, or this one after its restart, can do better.
      if (!(error instanceof CallAgain) || this.#stopping || job.attemptsMade + 1 < attemptsMax) throw error;
      ({ reply } = error);
    }
    const isLast = job.attemptsMade + 1 >= attemptsMax && !this.#stopping;
    const kept = await this.#keep(call, reply, isLast);
    if (kept === undefined) {
      this.#counts.dropped++;
      const ended = await this.#store.reply(id);
      if (ended?.state === 'finished') await this.#callbacks.ask(id, call.callbackUrl);
      return endOf(ended);
    }
    this.#counts.finished++;
    await this.#callbacks.ask(id, call.callbackUrl);
    return { status: kept.status };
  }

  /**
   * Ends a call with its reply. A reply that Redis will never take, or has refused at the last try (`isLast`), is
   * replaced by the reason, so that the client gets an answer. Resolves to the stored reply; undefined: the call had
   * ended before.
   */
  async #keep(call: StoredCall, reply: CallReply, isLast: boolean): Promise<CallReply | undefined> {
    const end = async (kept: CallReply): Promise<CallReply | undefined> =>
      (await this.#end(call, { state: 'finished', reply: kept })) ? kept : undefined;
    const bytes = reply.body.byteLength;
    if (bytes > replyBytesMax) {
      const limit = `over the ${replyBytesMax} that go through Redis at most`;
      return await end(unkept(`its ${bytes} bytes are ${limit}`));
    }
    try {
      return await end(reply);
    } catch (error) {
      // Redis may have room for it later.
      if (!isLast || !isRefusal(error)) throw error;
      return await end(unkept(this.#options.link.failure(error).message));
    }
  }

  /** False: it had ended before. */
  async #end(call: StoredCall, ending: Parameters<CallStore['end']>[1]): Promise<boolean> {
    const { ended, kept } = await this.#store.end(call, ending);
    // The call ran before its acceptance was complete, which may have failed midway: counted once nevertheless.
    if (kept) this.#counts.accepted++;
    return ended;
  }
}

function isIn(jobs: readonly Job[]): (job: Job) => boolean {
  const ids = new Set(jobs.map(({ id }) => id));
  return ({ id }) => ids.has(id);
}

/** How a call ended, for lists. */
function endOf(ended: StoredReply | undefined): CallEnd {
  if (ended?.state === 'finished') return { status: ended.reply.status };
  return { status: undefined, isCancelled: ended?.state === 'cancelled' };
}

/** In place of a reply that could not be kept. */
const unkept = (reason: string): CallReply =>
  errorReply(503, 'queue-unavailable', `the call ran, and its reply could not be kept: ${reason}`);
