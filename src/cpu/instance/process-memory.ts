/** How much of the machine's memory processes use. */
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';

/**
 * The proportional set size of a process: its own pages plus its part of shared pages, so that the sum over processes
 * counts nothing twice. Undefined where the system does not tell, or the process is gone.
 */
export async function proportionalBytes(pid: number): Promise<number | undefined> {
  try {
    const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8');
    const kibibytes = /^Pss:\s*(\d+) kB/m.exec(text)?.[1];
    return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
  } catch {
    return undefined;
  }
}

/** Whether more than half of the memory that this process may have is in use. False where there is no limit. */
export function isMemoryShort(): boolean {
  try {
    const limit = /^Max data size +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    const usedKiB = /^VmData:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
    return limit !== undefined && Number(usedKiB) * 1024 > Number(limit) / 2;
  } catch {
    return false;
  }
}
