/** The use of processors by a process and all that it has started. */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts in these for every processor (USER_HZ). */
const tickMs = 10;

/**
 * Milliseconds of processors that the process, its children and theirs have used, those that have ended and were waited
 * for included; undefined where the system does not tell. Some 20 us for each process.
 */
export function treeCpuMs(pid = process.pid, root = '/proc'): number | undefined {
  const own = usedMs(pid, root);
  if (own === undefined) return undefined;
  let sumMs = own;
  for (const child of childrenOf(pid, root)) sumMs += treeCpuMs(child, root) ?? 0;
  return sumMs;
}

function usedMs(pid: number, root: string): number | undefined {
  try {
    const stat = readFileSync(`${root}/${pid}/stat`, 'latin1');
    // Behind the name, which may contain brackets; fields 14 to 17 are its own time and that of ended children.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return tickMs * fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
  } catch {
    return undefined;
  }
}

/** Any thread may have started them. */
function childrenOf(pid: number, root: string): number[] {
  try {
    return readdirSync(`${root}/${pid}/task`).flatMap((thread) =>
      readFileSync(`${root}/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    );
  } catch {
    return [];
  }
}
