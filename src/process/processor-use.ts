/** What processes use of processors, as Linux tells it in /proc. */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts in these for every processor (USER_HZ). */
const tickMs = 10;

export interface ProcessorUse {
  readonly usedMs: number;
  /** What ended children have used that were waited for. */
  readonly childrenMs: number;
  /** `R` runs or could run, `S` sleeps, `D` waits for a disk; others are stopped or gone. */
  readonly state: string;
}

/** Undefined for a process that is gone, and where the system does not tell. */
export function processorUse(pid: number): ProcessorUse | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // Behind the name, which may contain brackets: the state, and as fields 14 to 17 the times.
    const [state = '', ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const [user = 0, system = 0, childrenUser = 0, childrenSystem = 0] = fields.slice(10, 14).map(Number);
    return { usedMs: (user + system) * tickMs, childrenMs: (childrenUser + childrenSystem) * tickMs, state };
  } catch {
    return undefined;
  }
}

/** Whether a signal or a debugger has stopped it, so that nothing runs in it. */
export const isStopped = (pid: number): boolean => ['T', 't'].includes(processorUse(pid)?.state ?? '');

/** Milliseconds that the process, its children and theirs have used, ended ones included; undefined as above. */
export function treeCpuMs(pid = process.pid): number | undefined {
  const own = processorUse(pid);
  if (own === undefined) return undefined;
  return childrenOf(pid).reduce((sum, child) => sum + (treeCpuMs(child) ?? 0), own.usedMs + own.childrenMs);
}

/** Any thread may have started them. */
function childrenOf(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    );
  } catch {
    return [];
  }
}
