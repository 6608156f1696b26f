/** How much of the machine's memory processes use. */
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
