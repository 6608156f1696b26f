/** Time limits of many transfers at once: bodies that arrive, and replies that are read. */

/** The least progress of a transfer within the time limit; a working connection brings far more. */
export const paceBytesMin = 64 * 1024;

export interface Watch {
  /** Instant (performance.now()) of the last progress; Infinity while the client owes nothing. */
  sinceMs: number;
  /** Called again and again until the watch is removed or `sinceMs` is later. */
  readonly expire: () => void;
  /** Its index among the watched; -1: not watched. */
  at: number;
}

/** One interval for all transfers: a timer for each would cost more than a small body does. */
export class Watches {
  readonly #timeoutMs: number;
  readonly #watched: Watch[] = [];
  readonly #sweep: NodeJS.Timeout;

  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
    this.#sweep = setInterval(() => this.#expire(), Math.min(1000, Math.max(10, timeoutMs / 4)));
    this.#sweep.unref();
  }

  close(): void {
    clearInterval(this.#sweep);
  }

  add(watch: Watch): void {
    watch.at = this.#watched.push(watch) - 1;
  }

  /** The last one takes its place: a Set would hash each transfer. */
  remove(watch: Watch): void {
    const last = this.#watched.at(-1);
    if (watch.at === -1 || last === undefined) return;
    this.#watched[watch.at] = last;
    last.at = watch.at;
    watch.at = -1;
    this.#watched.pop();
  }

  #expire(): void {
    const oldestMs = performance.now() - this.#timeoutMs;
    // Backwards: an expired watch is replaced by the last one.
    for (let at = this.#watched.length - 1; at >= 0; at--) {
      const watch = this.#watched[at]!;
      if (watch.sinceMs < oldestMs) watch.expire();
    }
  }
}
