/** A few instances kept started with ONNX Runtime loaded, so that a pool grows without paying for the start of a process. */
import { Instance } from './instance.ts';
import type { InstanceLog } from './instance-run.ts';

/** Deaths in a row before a new process is delayed: a machine that cannot start one must not be kept busy trying. */
const quickDeathsMax = 3;
const restartDelayMs = 1000;

export class BlankSet {
  readonly #size: number;
  readonly #log: InstanceLog;
  readonly #blanks = new Set<Instance>();
  #deathsInRow = 0;
  #stopped = false;
  #refillTimer: NodeJS.Timeout | undefined;

  constructor(size: number, log: InstanceLog) {
    this.#size = size;
    this.#log = log;
    this.refill();
  }

  get size(): number {
    return this.#blanks.size;
  }

  /**
   * A started instance if there is one, else one that is starting now; the caller owns it.
   *
   * @param anew in any case one that starts now: what was wrong with a blank one may be wrong with all of them
   */
  take(anew: boolean): Instance {
    if (anew) return new Instance(this.#log);
    let taken: Instance | undefined;
    for (const blank of this.#blanks) {
      if (taken === undefined || (taken.state === 'starting' && blank.state === 'blank')) taken = blank;
    }
    if (taken === undefined) return new Instance(this.#log);
    this.#blanks.delete(taken);
    return taken;
  }

  /** Starts what is missing. Pools call it once their load is over, so that a start never competes with a load. */
  refill(): void {
    if (this.#stopped || this.#refillTimer !== undefined) return;
    while (this.#blanks.size < this.#size) this.#add();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#refillTimer);
    for (const blank of this.#blanks) blank.kill('the host is stopping');
    this.#blanks.clear();
  }

  #add(): void {
    const blank = new Instance(this.#log);
    this.#blanks.add(blank);
    blank.whenBlank(() => {
      this.#deathsInRow = 0;
    });
    blank.onDead((reason) => {
      if (!this.#blanks.delete(blank) || this.#stopped) return;
      this.#deathsInRow++;
      if (this.#deathsInRow < quickDeathsMax) {
        this.refill();
        return;
      }
      this.#log(blank.pid, undefined, `a blank instance died ${this.#deathsInRow} times in a row: ${reason}`);
      this.#refillTimer ??= setTimeout(() => {
        this.#refillTimer = undefined;
        this.refill();
      }, restartDelayMs);
    });
  }
}
