/** Messages to and from the thread that waits for events. */
import type { MessagePort } from 'node:worker_threads';

export interface WaitThreadOptions {
  /** A path, or a name for the dynamic linker: the same as in the main thread. */
  readonly libraryFile: string;
  readonly port: MessagePort;
  /** [0]: the number of messages, to sleep on; [1]: a {@link waitThreadState}. */
  readonly signal: Int32Array;
}

export const waitThreadState = { starting: 0, running: 1, ended: 2 };

export interface WaitRequest {
  readonly id: number;
  readonly context: number;
  readonly event: number;
}

export interface WaitResult {
  readonly id: number;
  /** The driver's status: 0 when the event was reached. */
  readonly status: number;
}
