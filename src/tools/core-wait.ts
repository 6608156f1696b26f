import { openSync, readSync } from 'node:fs';

const text = Buffer.alloc(96);
/** Undefined until it is opened, null where the system has none. */
let file: number | null | undefined;

/**
 * Milliseconds so far for which this thread was ready to run while others had the cores: the time on a clock less this
 * is what its work takes. Always 0 where the system does not tell.
 */
export function coreWaitMs(): number {
  if (file === null) return 0;
  try {
    file ??= openSync('/proc/thread-self/schedstat', 'r');
    // Nanoseconds on a core, nanoseconds of waiting for one, and how often it got one.
    const length = readSync(file, text, 0, text.byteLength, 0);
    const [, waitedNs] = text.toString('latin1', 0, length).split(' ', 2);
    return Number(waitedNs) / 1e6;
  } catch {
    file = null;
    return 0;
  }
}
