/**
 * The interface of the overflow queue, which takes invocations when this machine could not answer them in time: what is
 * sent, which workers take it, and how it can fail. Types only.
 */
import type { InvokeOptions, PoolInput, PoolResult } from '../cpu/index.ts';
import type { FunctionOffer } from '../fleet/index.ts';

/** What is said of an invocation that goes to a worker. */
export interface OverflowOptions extends InvokeOptions {
  /** Instant (performance.now()) by which its SLO wants the answer; default: whenever it can be. */
  readonly dueMs?: number | undefined;
  /** When the host had to begin, to answer in time itself. */
  readonly takeBack?: TakeBack | undefined;
}

export interface TakeBack {
  /** Instant (performance.now()); one that has passed never comes. */
  readonly atMs: number;
  /** Asked then. */
  readonly wouldBeInTime: () => boolean;
}

/** An answer, and which worker gave it. */
export interface OverflowResult {
  readonly result: PoolResult;
  /** Name of the worker that ran it. */
  readonly worker: string;
}

/** What the workers promise for an invocation that is sent now. */
export interface OverflowOffer {
  /** Name of the worker that would run it. */
  readonly worker: string;
  /** Milliseconds until its answer: round trip, waiting, loading and running. */
  readonly predictedMs: number;
  /** Its own run's part of that; undefined if it was never measured. */
  readonly callMs: number | undefined;
  /** Until the function could run there: starting, and fetching the model. */
  readonly startMs: number;
}

/** A worker, as `GET /v2/workers` and the metrics show it. */
export interface WorkerState {
  /** Different for each start of a worker. */
  readonly id: string;
  readonly name: string;
  readonly cores: number;
  /** Milliseconds since 1970. */
  readonly startedAtMs: number;
  /** A worker that drains finishes its invocations and takes no more. */
  readonly draining: boolean;
  /** Unanswered invocations over all functions. */
  readonly outstanding: number;
  /** Milliseconds that it needs for them. */
  readonly backlogMs: number;
  /** Bytes of models on its disk, and their limit. */
  readonly cacheBytes: number;
  readonly cacheBytesMax: number;
  /** By the revision under which workers know the function. */
  readonly functions: Readonly<Record<string, FunctionOffer>>;
}

export interface QueueState {
  /** Invocations at workers without an answer. */
  readonly outstanding: number;
  /** Answers so far, by worker name. */
  readonly answered: Readonly<Record<string, number>>;
  /** Invocations that went to another worker because the first was gone. */
  readonly movedElsewhere: number;
  /** Invocations that the host took back so that it could be in time itself. */
  readonly takenBack: number;
  /** Of these, those that a worker had taken: both may have run them. */
  readonly doubleRuns: number;
  /** Answers that came after another one, and were dropped. */
  readonly lateAnswers: number;
}

/** Where overflow goes. */
export interface OverflowQueue {
  /**
   * Sends one invocation to a worker. It is answered once, wherever and however often it ran.
   *
   * @throws QueueError if the queue could not do it, so that it may be run here instead; CpuError if it ran and
   *   failed, its deadline passed or it was cancelled, as a pool of this machine would have thrown
   */
  submit(key: string, input: PoolInput, options?: OverflowOptions): Promise<OverflowResult>;
  /** The best offer for a function; undefined if no worker takes it. Cheap: it is on the path of each request. */
  offer(key: string): OverflowOffer | undefined;
  /** The current workers. Reading them is never a use. */
  workers(): readonly WorkerState[];
  /** Latest measured round trip in milliseconds; undefined before the first. */
  readonly roundTripMs: number | undefined;
  state(): QueueState;
  /** Takes no more invocations, waits up to `graceMs` for those under way, and closes everything. */
  stop(graceMs: number): Promise<void>;
}

export type QueueErrorCode =
  /** Redis does not answer. */
  | 'unavailable'
  /** Nobody takes the function. */
  | 'no-worker'
  /** The worker with the invocation is gone, and no other takes it. */
  | 'worker-gone'
  /** See {@link TakeBack}. */
  | 'taken-back'
  | 'payload-too-large'
  | 'queue-full'
  | 'stopping';

/** A failure of the queue itself: the invocation has no answer from it. */
export class QueueError extends Error {
  override readonly name = 'QueueError';
  readonly code: QueueErrorCode;
  constructor(code: QueueErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
