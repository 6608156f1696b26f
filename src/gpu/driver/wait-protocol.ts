/** What the thread that waits for events is told, and what it answers. */
import type { MessagePort } from 'node:worker_threads';

export interface WaitThreadOptions {
  /** The driver's library as it was loaded: a path, or a name for the dynamic linker. */
  readonly libraryFile: string;
  readonly port: MessagePort;
  /** At 0 a count of messages, to sleep on; at 1 a {@link waitThreadState}. */
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
  /** 0, or the driver's status of the failure. */
  readonly status: number;
}
