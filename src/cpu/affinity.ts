/** Pins the threads of a process to cores, through the C library's sched_setaffinity (Linux; elsewhere nothing is pinned). */
import { readdirSync } from 'node:fs';
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
 * Pins every thread of a process to `cores`, and its main thread, which runs the model, to `mainCores` where given. The
 * threads that it starts later inherit this. False where that cannot be done: the process is gone, or the platform lacks it.
 */
export function pinProcess(pid: number, cores: readonly number[], mainCores: readonly number[] = cores): boolean {
  const call = affinityCall();
  if (call === undefined || cores.length === 0) return false;
  let threads: number[];
  try {
    threads = readdirSync(`/proc/${pid}/task`).map(Number);
  } catch {
    return false;
  }
  const mask = toMask(cores);
  const mainMask = toMask(mainCores);
  let pinned = true;
  for (const thread of threads) {
    const own = thread === pid ? mainMask : mask;
    // A thread may end meanwhile; what counts is the one that runs the model.
    if (call(thread, own.byteLength, own) !== 0 && thread === pid) pinned = false;
  }
  return pinned;
}

/** The kernel's bit mask, in whole 64-bit words. */
function toMask(cores: readonly number[]): Uint8Array {
  const mask = new Uint8Array((Math.floor(Math.max(...cores) / 64) + 1) * 8);
  for (const core of cores) mask[core >> 3] = (mask[core >> 3] ?? 0) | (1 << (core & 7));
  return mask;
}
