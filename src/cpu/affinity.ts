/** Which cores processes run on: pinning them, and asking for one's own. */
import { readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import type * as Koffi from 'koffi';
import { pinThread } from '../hardware/index.ts';

/**
 * Pins every thread of a process to `cores`, and its main thread, which runs the model, to `mainCores` where given. The
 * threads that it starts later inherit this. False where that cannot be done: the process is gone, or the platform lacks it.
 */
export function pinProcess(pid: number, cores: readonly number[], mainCores: readonly number[] = cores): boolean {
  if (cores.length === 0) return false;
  let threads: number[];
  try {
    threads = readdirSync(`/proc/${pid}/task`).map(Number);
  } catch {
    return false;
  }
  let pinned = true;
  for (const thread of threads) {
    // A thread may end meanwhile; what counts is the one that runs the model.
    if (!pinThread(thread, thread === pid ? mainCores : cores) && thread === pid) pinned = false;
  }
  return pinned;
}

/** The core that the calling thread runs on just now, by the operating system's number; undefined where nobody can tell. */
export function currentCore(): number | undefined {
  currentCall ??= lookForCurrentCall();
  const core = currentCall();
  return core < 0 ? undefined : core;
}

let currentCall: (() => number) | undefined;

function lookForCurrentCall(): () => number {
  if (process.platform === 'linux') {
    try {
      const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi;
      const call = koffi.load(null).func('int sched_getcpu()');
      return () => call() as number;
    } catch {
      // A platform without the call, or without a build of koffi.
    }
  }
  return () => -1;
}
