import { openSync, readSync } from 'node:fs';

const buffer = Buffer.alloc(96);
/** Of the file with the thread's times: undefined until it is opened, null where the system has none. */
let descriptor: number | null | undefined;

/**
 * Milliseconds so far for which this thread was ready to run while others had the cores. Elapsed time less this wait is
 * the time of its own work. Always 0 where the system does not tell.
 */
export function coreWaitMs(): number {
  if (descriptor === null) return 0;
  try {
    descriptor ??= openSync('/proc/thread-self/schedstat', 'r');
    // The file has nanoseconds on a core, nanoseconds of waiting for one, and how often the thread got one.
    const length = readSync(descriptor, buffer, 0, buffer.byteLength, 0);
    const [, waitedNs] = buffer.toString('latin1', 0, length).split(' ', 2);
    return Number(waitedNs) / 1e6;
  } catch {
    descriptor = null;
    return 0;
  }
}
