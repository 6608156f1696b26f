/** Logs a queue's errors at a limited rate: BullMQ reports each try of a command, which may be a thousand a second. */
import type { QueueLog } from './types.ts';

/** Errors of one kind are logged this often. */
const everyMs = 10_000;

export class ErrorLog {
  readonly #log: QueueLog;
  readonly #saidMs = new Map<string, number>();

  constructor(log: QueueLog) {
    this.#log = log;
  }

  say(error: unknown, message: string): void {
    // Redis' errors begin with their kind; the rest may name a job.
    const kind = `${message}: ${error instanceof Error ? /^\S*/.exec(error.message)?.[0] : ''}`;
    const nowMs = performance.now();
    if (nowMs - (this.#saidMs.get(kind) ?? -Infinity) < everyMs) return;
    this.#saidMs.set(kind, nowMs);
    this.#log.warn({ err: error }, message);
  }
}
