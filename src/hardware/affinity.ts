/** Pins threads to cores, through the C library's sched_setaffinity (Linux; elsewhere nothing is pinned). */
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';

type SetAffinity = (threadId: number, maskBytes: number, mask: Uint8Array) => number;

let setAffinity: SetAffinity | undefined;
let looked = false;

function affinityCall(): SetAffinity | undefined {
  if (looked) return setAffinity;
  looked = true;
  if (process.platform !== 'linux') return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi;
    const call = koffi.load(null).func('int sched_setaffinity(int thread, size_t bytes, const void *mask)');
    setAffinity = (threadId, maskBytes, mask) => call(threadId, maskBytes, mask) as number;
  } catch {
    // A platform without the call, or without a build of koffi: the operating system then places the threads.
  }
  return setAffinity;
}

/**
 * Pins a thread to `cores`, by the numbers that the operating system has for them; 0 is the thread that calls. What it starts
 * later inherits this. False where that cannot be done: the thread is gone, no such core is allowed, or the platform lacks the call.
 */
export function pinThread(threadId: number, cores: readonly number[]): boolean {
  const call = affinityCall();
  if (call === undefined || cores.length === 0) return false;
  const mask = toMask(cores);
  return call(threadId, mask.byteLength, mask) === 0;
}

/** The kernel's bit mask, in whole 64-bit words. */
function toMask(cores: readonly number[]): Uint8Array {
  const mask = new Uint8Array((Math.floor(Math.max(...cores) / 64) + 1) * 8);
  for (const core of cores) mask[core >> 3] = (mask[core >> 3] ?? 0) | (1 << (core & 7));
  return mask;
}
