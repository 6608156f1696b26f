/**
 * Processes that the kernel ended for lack of memory. It ends them by SIGKILL, like anybody else, but counts each:
 * `oom_kill` of the control group, or of the machine where there is no group.
 */
import { controlGroupFolders, readText } from '../tools/index.ts';

export interface KernelKill {
  readonly pid: number;
  /** What the process was for, as its starter named it. */
  readonly purpose: string | undefined;
}

/** The count below `root`: of the innermost group that has one; undefined where the system does not count. */
export function countKernelKills(root = '/'): number | undefined {
  // Of version 2, the root has no such file; of version 1, a container's group is mounted under another name.
  const files = [
    ...controlGroupFolders(root, undefined).map((folder) => `${folder}/memory.events`),
    ...controlGroupFolders(root, 'memory').map((folder) => `${folder}/memory.oom_control`),
    'proc/vmstat',
  ];
  for (const file of files) {
    const count = /^oom_kill (\d+)$/m.exec(readText(root, file) ?? '')?.[1];
    if (count !== undefined) return Number(count);
  }
  return undefined;
}

export class KernelKills {
  readonly #count: () => number | undefined;
  readonly #listeners = new Set<(kill: KernelKill) => void>();
  /** Counted kills that are attributed to a process of ours, or that happened before. */
  #explained: number;

  constructor(count: () => number | undefined = countKernelKills) {
    this.#count = count;
    this.#explained = count() ?? 0;
  }

  /** Called for each process of ours that the kernel ends. Returns a function that removes the listener. */
  follow(listener: (kill: KernelKill) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Whether the kernel ended this process for lack of memory. Asked once for each process that ended by a SIGKILL which
   * the host did not send: a counted kill explains one end.
   */
  explains(kill: KernelKill): boolean {
    // The kernel counts before it sends the signal.
    if ((this.#count() ?? 0) <= this.#explained) return false;
    this.#explained++;
    for (const listener of this.#listeners) listener(kill);
    return true;
  }
}

/** The kernel's kills of child processes of this one. */
export const kernelKills = new KernelKills();
