/**
 * Keeps a few processes started with ONNX Runtime loaded, so that a pool grows without waiting for a process to start.
 */
import { formatDuration } from '../../tools/index.ts';
import type { Instance } from './instance.ts';

/**
 * Deaths in a row before the next start is delayed: a machine that cannot start processes must not be kept busy trying.
 */
const quickDeathsMax = 3;
/** Doubled with each further death, up to a maximum. */
const restartDelayMs = 1000;
const restartDelayMsMax = 60_000;

/** What it asks of a process. */
export type BlankProcess = Pick<Instance, 'hasStarted' | 'whenStarted' | 'onDead' | 'kill'>;

export class BlankSet<Process extends BlankProcess> {
  readonly #size: number;
  readonly #warn: (line: string) => void;
  readonly #start: () => Process;
  readonly #mayAdd: () => boolean;
  readonly #blanks = new Set<Process>();
  #deathsInRow = 0;
  #stopped = false;
  #willRefill = false;
  #refillTimer: NodeJS.Timeout | undefined;

  /** @param mayAdd whether there is room for one more */
  constructor(size: number, warn: (line: string) => void, start: () => Process, mayAdd: () => boolean = () => true) {
    this.#size = size;
    this.#warn = warn;
    this.#start = start;
    this.#mayAdd = mayAdd;
  }

  get size(): number {
    return this.#blanks.size;
  }

  /**
   * A blank instance if there is one, else one that is just starting; the caller owns it.
   *
   * @param anew always a new process: if something was wrong with one blank process, it may be wrong with all of them
   */
  take(anew: boolean): Process {
    if (anew) return this.#start();
    let taken: Process | undefined;
    for (const blank of this.#blanks) {
      if (taken === undefined || (!taken.hasStarted && blank.hasStarted)) taken = blank;
    }
    if (taken === undefined) return this.#start();
    this.#blanks.delete(taken);
    return taken;
  }

  /**
   * Starts the missing processes. Pools call it after their loads, so that a start never competes with a load. Each
   * start blocks the event loop for some milliseconds, so each begins in an event loop turn of its own.
   */
  refill(): void {
    if (this.#willRefill || this.#stopped || this.#refillTimer !== undefined || this.#blanks.size >= this.#size) return;
    if (!this.#mayAdd()) return;
    this.#willRefill = true;
    this.#add();
    setImmediate(() => {
      this.#willRefill = false;
      this.refill();
    });
  }

  /** Ends one, so that there is room for a session. Returns whether there was one. */
  giveUp(): boolean {
    for (const blank of this.#blanks) {
      this.#blanks.delete(blank);
      blank.kill('its memory was needed');
      return true;
    }
    return false;
  }

  /** Resolves once one has started, or if there is none to wait for. */
  started(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#stopped || this.#blanks.size === 0) resolve();
      for (const blank of this.#blanks) {
        blank.whenStarted(resolve);
        blank.onDead(() => resolve());
      }
    });
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#refillTimer);
    for (const blank of this.#blanks) blank.kill('the host is stopping');
    this.#blanks.clear();
  }

  #add(): void {
    const blank = this.#start();
    this.#blanks.add(blank);
    blank.whenStarted(() => {
      this.#deathsInRow = 0;
    });
    blank.onDead(({ reason }) => {
      if (!this.#blanks.delete(blank) || this.#stopped) return;
      this.#deathsInRow++;
      if (this.#deathsInRow < quickDeathsMax) {
        this.refill();
        return;
      }
      const delayMs = Math.min(restartDelayMsMax, restartDelayMs * 2 ** (this.#deathsInRow - quickDeathsMax));
      this.#warn(
        `processes that are kept ready for functions died ${this.#deathsInRow} times in a row; the next starts in ` +
          `${formatDuration(delayMs)}: ${reason}`,
      );
      this.#refillTimer ??= setTimeout(() => {
        this.#refillTimer = undefined;
        this.refill();
      }, delayMs);
    });
  }
}
