/** What the thread that waits for events is told, and what it answers. */
import type { MessagePort } from 'node:worker_threads';

export interface WaitThreadOptions {
  /** The driver's library as it was loaded: a path, or a name for the dynamic linker. */
  readonly libraryFile: string;
  readonly port: MessagePort;
  readonly signal: Int32Array;
}

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
