/**
 * The seam of the overflow queue: what is handed over when this machine has more to do than it can answer in time, who
 * takes it, and how that can fail. Nothing here runs.
 */
import type { InvokeOptions, PoolInput, PoolResult } from '../cpu/index.ts';

/** An answer, and who gave it. */
export interface OverflowResult {
  readonly result: PoolResult;
  /** Name of the one that ran it. */
  readonly worker: string;
}

/** What those who take invocations promise for one that is handed over now. */
export interface OverflowOffer {
  /** Name of the one that would run it. */
  readonly worker: string;
  /** Milliseconds until its answer would be here: way there and back, waiting, loading and running. */
  readonly predictedMs: number;
  /** Of that, what its own run takes; undefined where nobody has measured it. */
  readonly callMs: number | undefined;
  /** Until the function could run there: starting, and fetching the model. */
  readonly startMs: number;
}

/** How well somebody runs one function. */
export interface FunctionCapacity {
  /** Invocations that run at the same time. */
  readonly slots: number;
  /** Cores that each takes. */
  readonly threads: number;
  /** Measured milliseconds of one invocation, without waiting and loading; undefined before the first. */
  readonly callMs: number | undefined;
  /** Whether the model is on its disk. */
  readonly held: boolean;
  /** Expected milliseconds until the function could run: 0 where an instance is ready. */
  readonly startMs: number;
  /** Invocations that it has and has not answered. */
  readonly outstanding: number;
}

/** One that takes invocations, as `GET /v2/workers` and the metrics show it. */
export interface WorkerState {
  /** Different for each start of a worker. */
  readonly id: string;
  readonly name: string;
  readonly cores: number;
  /** Milliseconds since 1970. */
  readonly startedAtMs: number;
  /** A worker that drains finishes what it has and takes no more. */
  readonly draining: boolean;
  /** Invocations that it has and has not answered, over all functions. */
  readonly outstanding: number;
  /** Milliseconds that it needs to work them off. */
  readonly backlogMs: number;
  /** Bytes of models on its disk, and the most that it keeps there. */
  readonly cacheBytes: number;
  readonly cacheBytesMax: number;
  /** By the key under which the queue knows the function. */
  readonly functions: Readonly<Record<string, FunctionCapacity>>;
}

/** Whether the queue works. */
export type QueueHealth =
  | { readonly status: 'up'; readonly sinceMs: number }
  | { readonly status: 'down'; readonly sinceMs: number; readonly reason: string };

export interface QueueState {
  /** Instants are milliseconds since 1970. */
  readonly health: QueueHealth;
  /** Invocations that were handed over and are not answered. */
  readonly outstanding: number;
  /** Answers so far, by the name of who gave them. */
  readonly answered: Readonly<Record<string, number>>;
  /** Invocations that went to another because the first who had them was gone. */
  readonly movedElsewhere: number;
  /** Answers that came after somebody else's, and were dropped. */
  readonly lateAnswers: number;
}

/** Where overflow goes. */
export interface OverflowQueue {
  /**
   * Hands one invocation over. It is answered once, whoever ran it and however often.
   *
   * @throws QueueError where the queue could not do it, so that it may be run here instead; CpuError where it ran and
   *   failed, its deadline passed or it was cancelled, as a pool of this machine would have thrown
   */
  submit(key: string, input: PoolInput, options?: InvokeOptions): Promise<OverflowResult>;
  /** The best offer for a function; undefined when nobody takes it. Cheap: it stands on the path of each request. */
  offer(key: string): OverflowOffer | undefined;
  /** Who takes invocations now. Reading it is never a use. */
  workers(): readonly WorkerState[];
  /** Milliseconds of the way there and back, as last measured; undefined before the first. */
  readonly roundTripMs: number | undefined;
  state(): QueueState;
  /** Takes nothing new, waits for what was handed over until `graceMs` is over, and lets go of everything. */
  stop(graceMs: number): Promise<void>;
}

/** One that runs invocations which the queue hands it. */
export interface Taker {
  readonly name: string;
  readonly cores: number;
  /** undefined: it does not take this function. */
  capacity(key: string): FunctionCapacity | undefined;
  /** @throws CpuError */
  run(key: string, input: PoolInput, options: InvokeOptions): Promise<PoolResult>;
}

export type QueueErrorCode =
  /** Redis does not answer. */
  | 'unavailable'
  /** Nobody takes the function. */
  | 'no-worker'
  /** Whoever had the invocation is gone, and nobody else takes it. */
  | 'worker-gone'
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

/** The part of a pino logger that the queue writes to. */
export interface QueueLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}
