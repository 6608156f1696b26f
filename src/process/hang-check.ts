/**
 * Tells a process that hangs from one that is starved: a time limit that has passed says nothing of a process that got
 * hardly any time of a processor, and ending it makes the machine busier still.
 */
import { processorUse, type ProcessorUse } from './processor-use.ts';

type Use = Pick<ProcessorUse, 'usedMs' | 'state'>;

/** A process that has been starved through so many limits is of no use to anybody. */
const looksMax = 10;

export class HangCheck {
  readonly #limitMs: number;
  readonly #use: () => Use | undefined;
  #looks = 0;
  #firstMs = 0;
  #lastMs = 0;

  /** @param limitMs as much time of a processor is always enough */
  constructor(pid: number, limitMs: number, use = (): Use | undefined => processorUse(pid)) {
    this.#limitMs = limitMs;
    this.#use = use;
  }

  /**
   * To be asked each time the limit has passed again without a sign of the process. The first time it only looks what
   * the process has used so far.
   */
  hangs(): boolean {
    const use = this.#use();
    if (use === undefined || !'RSD'.includes(use.state) || ++this.#looks > looksMax) return true;
    const { usedMs, state } = use;
    if (this.#looks === 1) this.#firstMs = usedMs;
    const isIdle = usedMs === this.#lastMs && state === 'S';
    this.#lastMs = usedMs;
    return this.#looks > 1 && (isIdle || usedMs - this.#firstMs >= this.#limitMs);
  }
}
