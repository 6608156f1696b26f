/** Limits that are counts: processes with their threads, and open files. */
import { controlGroupFolders, listFolder, readInteger, readText } from '../tools/index.ts';

/** What a limit allows, and how much of it is used. */
export interface CountLimit {
  /** Undefined: no limit. */
  readonly most: number | undefined;
  /** Undefined: the system does not tell. */
  readonly used: number | undefined;
}

/** Processes and threads of the control group with the least left; without a limit, those of the machine. */
export function readProcesses(root = '/'): CountLimit {
  const limits = [undefined, 'pids'].flatMap((controller) =>
    controlGroupFolders(root, controller).flatMap((folder) => {
      const most = readInteger(root, `${folder}/pids.max`);
      return most === undefined ? [] : [{ most, used: readInteger(root, `${folder}/pids.current`) }];
    }),
  );
  const [tightest] = limits.sort((a, b) => a.most - (a.used ?? 0) - (b.most - (b.used ?? 0)));
  return tightest ?? { most: readInteger(root, 'proc/sys/kernel/pid_max'), used: undefined };
}

/** Threads of a process that runs models, with those of Node and ONNX Runtime; the GPU process has three times as many. */
export const threadsOfProcess = 16;

/** Where no further process fits below the limit: that, in words. */
export function processesShort({ most, used }: CountLimit = readProcesses()): string | undefined {
  if (most === undefined || used === undefined || most - used >= threadsOfProcess) return undefined;
  return `${used} of the ${most} processes and threads are there that the control group allows (raise pids.max)`;
}

/** Open files of this process (RLIMIT_NOFILE). */
export function readDescriptors(root = '/'): CountLimit {
  const most = /^Max open files\s+(\d+)\s/m.exec(readText(root, 'proc/self/limits') ?? '')?.[1];
  const open = listFolder(root, 'proc/self/fd').length;
  return { most: most === undefined ? undefined : Number(most), used: open === 0 ? undefined : open };
}

/** Connections that leave enough of the files that this process may open for models, children and the log. */
export function connectionsMax({ most = 1_000_000 }: CountLimit = readDescriptors()): number {
  return Math.max(2, Math.floor(0.75 * most));
}

/**
 * Whether a failure is the machine's: memory, processes, files or disk did not suffice. Told by what the operating
 * system, Node, ONNX Runtime and this host say of it.
 */
export function isMachineShort(reason: string): boolean {
  return /\bE(?:AGAIN|NOMEM|MFILE|NFILE|NOSPC|DQUOT|IO)\b|pthread_create|Resource temporarily unavailable|Cannot allocate memory|Too many open files|No space left on device|for lack of memory|no room for it in the memory|the model was not checked|\(raise pids\.max\)/.test(
    reason,
  );
}
