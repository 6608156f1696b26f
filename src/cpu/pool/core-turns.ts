/**
 * Runs on the cores that nobody has leased: each takes the threads of its instance. A function that has nothing running
 * is always granted its first run, and the operating system then divides the time, so that no function waits for
 * another's long run; further ones are granted only while cores are free.
 */
import type { CoreAllocator } from './cores.ts';

export class CoreTurns {
  readonly #cores: CoreAllocator;
  #busyThreads = 0;
  /** Told once when cores may be free. */
  readonly #waiting = new Set<() => void>();
  #isScheduled = false;

  constructor(cores: CoreAllocator) {
    this.#cores = cores;
  }

  /** @param pump told when it is worth asking again, where it was refused */
  take(threads: number, isFirst: boolean, pump: () => void): boolean {
    if (!isFirst && this.#busyThreads + threads > this.#cores.unleased().length) {
      this.#waiting.add(pump);
      return false;
    }
    this.#busyThreads += threads;
    return true;
  }

  /** For a run that had given them back while its model ran elsewhere: granted in any case. */
  retake(threads: number): void {
    this.#busyThreads += threads;
  }

  give(threads: number): void {
    this.#busyThreads -= threads;
    this.changed();
  }

  forget(pump: () => void): void {
    this.#waiting.delete(pump);
  }

  /** Later, and once: a pool may be in the middle of its own pump. */
  changed(): void {
    if (this.#isScheduled || this.#waiting.size === 0) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      const waiting = [...this.#waiting];
      this.#waiting.clear();
      for (const pump of waiting) pump();
    });
  }
}
