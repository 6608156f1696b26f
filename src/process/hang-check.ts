/**
 * Tells a process that hangs from one that is starved: a time limit that has passed says nothing of a process that got
 * hardly any time of a processor, and ending it makes the machine busier still.
 */
import { readFileSync } from 'node:fs';

/** What a process has used of processors, and whether it could use more now, or waits for a disk. */
export interface ProcessorUse {
  readonly usedMs: number;
  readonly isWaiting: boolean;
}

/** Linux counts in these for every processor (USER_HZ). */
const tickMs = 10;
/** A process that has been starved through so many limits is of no use to anybody. */
const looksMax = 10;

export class HangCheck {
  readonly #limitMs: number;
  readonly #use: () => ProcessorUse | undefined;
  #looks = 0;
  #firstMs = 0;
  #lastMs = 0;

  /** @param limitMs as much time of a processor is always enough */
  constructor(pid: number, limitMs: number, use = (): ProcessorUse | undefined => processorUse(pid)) {
    this.#limitMs = limitMs;
    this.#use = use;
  }

  /**
   * To be asked each time the limit has passed again without a sign of the process. The first time it only looks what
   * the process has used so far.
   */
  hangs(): boolean {
    const use = this.#use();
    if (use === undefined || ++this.#looks > looksMax) return true;
    const { usedMs, isWaiting } = use;
    if (this.#looks === 1) this.#firstMs = usedMs;
    const isIdle = usedMs === this.#lastMs && !isWaiting;
    this.#lastMs = usedMs;
    return this.#looks > 1 && (isIdle || usedMs - this.#firstMs >= this.#limitMs);
  }
}

/** Undefined for a process that is gone or stopped, or where the system does not tell. */
function processorUse(pid: number): ProcessorUse | undefined {
  try {
    // Behind the name, which may contain brackets: the state, and from field 14 on the time in the process and in the
    // kernel.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state = '', ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (!'RSD'.includes(state)) return undefined;
    return { usedMs: (Number(fields[10]) + Number(fields[11])) * tickMs, isWaiting: state !== 'S' };
  } catch {
    return undefined;
  }
}
