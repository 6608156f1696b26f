/** Pins threads to cores, through the C library's sched_setaffinity (Linux; elsewhere nothing is pinned). */
import { libcFunction } from '../process/index.ts';

/**
 * Pins a thread to `cores`, numbered as by the operating system; thread 0 is the calling one. Threads that it starts
 * later inherit this. False if it cannot be done: the thread is gone, no such core is allowed, or the platform lacks
 * the call.
 */
export function pinThread(threadId: number, cores: readonly number[]): boolean {
  const setAffinity = libcFunction('int sched_setaffinity(int thread, size_t bytes, const void *mask)');
  if (setAffinity === undefined || cores.length === 0) return false;
  const mask = toMask(cores);
  return setAffinity(threadId, mask.byteLength, mask) === 0;
}

/** The kernel's bit mask, in whole 64-bit words. */
function toMask(cores: readonly number[]): Uint8Array {
  const mask = new Uint8Array((Math.floor(Math.max(...cores) / 64) + 1) * 8);
  for (const core of cores) mask[core >> 3] = (mask[core >> 3] ?? 0) | (1 << (core & 7));
  return mask;
}
