/** Pins processes to cores, and orders their messages by the core of the calling thread. */
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

/**
 * The order in which instances on these cores get their parts, as indices: last the one whose model runs on the
 * caller's core, and before it those with other threads there. An instance that is woken on the caller's core may take
 * the core at once and keep it for some milliseconds, and parts that have not been sent by then wait as long.
 *
 * @param cores of each instance, the one that runs the model first
 * @param here the caller's core, if known
 */
export function handOverOrder(cores: readonly (readonly number[])[], here: number | undefined): number[] {
  const order = cores.map((_, index) => index);
  if (here === undefined) return order;
  const rank = (own: readonly number[] | undefined): number => (own?.[0] === here ? 2 : own?.includes(here) ? 1 : 0);
  return order.sort((a, b) => rank(cores[a]) - rank(cores[b]));
}
