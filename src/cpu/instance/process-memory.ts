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

/** Pages on other machines are larger, and there a run seems to take less. */
const pageBytes = 4096;

/** Of this process, since it started. */
export interface MemoryUse {
  readonly peakBytes: number;
  /** Pages that it was given, each with a page fault. */
  readonly pages: number;
  /** Of files that it maps, and of memory that it shares with the host. */
  readonly sharedBytes: number;
}

export function memoryUse(): MemoryUse {
  const { maxRSS, minorPageFault } = process.resourceUsage();
  return { peakBytes: maxRSS * 1024, pages: minorPageFault, sharedBytes: heldBytes(['RssFile', 'RssShmem']) };
}

/**
 * How much memory this process was given between the two, whether or not it has returned it. Huge pages show at its peak
 * only. Weights that are mapped come into memory with the first run: the session counts with them already.
 */
export function bytesBetween(before: MemoryUse, after: MemoryUse): number {
  const given = Math.max(after.peakBytes - before.peakBytes, (after.pages - before.pages) * pageBytes);
  return Math.max(0, given - Math.max(0, after.sharedBytes - before.sharedBytes));
}

/** What this process holds and no other one, and what is in no file. */
export const ownBytes = (): number => heldBytes(['RssAnon']);

/** The sum of these fields of the process's status; 0 where the system does not tell. */
function heldBytes(names: readonly string[]): number {
  try {
    const text = readFileSync('/proc/self/status', 'utf8');
    return names.reduce((sum, name) => sum + kibibytesOf(text, name) * 1024, 0);
  } catch {
    return 0;
  }
}

const kibibytesOf = (status: string, name: string): number =>
  Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1] ?? 0);
