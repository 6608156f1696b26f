/** Instants at which the scheduler wants to be woken. */
export class Timers {
  readonly #now: () => number;
  readonly #wake: () => void;
  readonly #timers = new Set<NodeJS.Timeout>();
  #closed = false;

  constructor(now: () => number, wake: () => void) {
    this.#now = now;
    this.#wake = wake;
  }

  /** GPUs ask for instants independently. A timer may fire a little early, when none is due yet. */
  at(atMs: number): void {
    if (this.#closed) return;
    const timer = setTimeout(
      () => {
        this.#timers.delete(timer);
        if (this.#now() < atMs) this.at(atMs);
        else this.#wake();
      },
      Math.max(0, Math.ceil(atMs - this.#now())),
    );
    timer.unref();
    this.#timers.add(timer);
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}
