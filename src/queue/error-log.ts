/** Logs a queue's errors at a limited rate: BullMQ reports each try of a command, which may be a thousand a second. */
import type { Log } from '../tools/index.ts';

/** Errors of one kind are logged this often. */
const everyMs = 10_000;

export function errorLog(log: Log): (error: unknown, message: string) => void {
  const saidMs = new Map<string, number>();
  return (error, message) => {
    // Redis' errors begin with their kind; the rest may name a job.
    const kind = `${message}: ${error instanceof Error ? /^\S*/.exec(error.message)?.[0] : ''}`;
    const nowMs = performance.now();
    if (nowMs - (saidMs.get(kind) ?? -Infinity) < everyMs) return;
    saidMs.set(kind, nowMs);
    log.warn({ err: error }, message);
  };
}
