/**
 * The interface of the overflow queue, which takes invocations when this machine could not answer them in time: what is
 * sent, which workers take it, and how it can fail. Types only.
 */
import type { InvokeOptions, PoolResult } from '../cpu/index.ts';

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

export interface QueueState {
  /** Invocations at workers without an answer. */
  readonly outstanding: number;
  /** Answers so far, by worker name. */
  readonly answered: Readonly<Record<string, number>>;
  /** Invocations that went to another worker because the first was gone. */
  readonly movedElsewhere: number;
  /** Invocations that the host took back so that it could be in time itself. */
  readonly takenBack: number;
  /** How many of these a worker had taken: both may have run them. */
  readonly doubleRuns: number;
  /** Answers that came after another one, and were dropped. */
  readonly lateAnswers: number;
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
