/** Errors of a queue in the log: BullMQ reports each try of a command, which may be a thousand a second. */
import type { QueueLog } from './types.ts';

/** An error of one kind is said this often. */
const everyMs = 10_000;

export class ErrorLog {
  readonly #log: QueueLog;
  readonly #saidMs = new Map<string, number>();

  constructor(log: QueueLog) {
    this.#log = log;
  }

  say(error: unknown, message: string): void {
    // Redis' own errors begin with their kind; what follows may name a job.
    const kind = `${message}: ${error instanceof Error ? /^\S*/.exec(error.message)?.[0] : ''}`;
    const nowMs = performance.now();
    if (nowMs - (this.#saidMs.get(kind) ?? -Infinity) < everyMs) return;
    this.#saidMs.set(kind, nowMs);
    this.#log.warn({ err: error }, message);
  }
}
