/** Pins processes to cores, and finds the core of the calling thread. */
import { readdirSync } from 'node:fs';
import { pinThread } from '../../hardware/index.ts';
import { libcFunction } from '../../process/index.ts';

/**
 * Pins every thread of a process to `cores`, and its main thread, which runs the model, to `mainCores`. Threads that it
 * starts later inherit this. Does nothing where the process is gone, or the platform cannot pin.
 */
export function pinProcess(pid: number, cores: readonly number[], mainCores: readonly number[]): void {
  if (cores.length === 0) return;
  let threads: number[];
  try {
    threads = readdirSync(`/proc/${pid}/task`).map(Number);
  } catch {
    return;
  }
  // Threads may end meanwhile.
  for (const thread of threads) pinThread(thread, thread === pid ? mainCores : cores);
}

/**
 * The core that the calling thread runs on now, by the operating system's number; undefined where the platform does not
 * tell.
 */
export function currentCore(): number | undefined {
  const core = (libcFunction('int sched_getcpu()')?.() ?? -1) as number;
  return core < 0 ? undefined : core;
}
