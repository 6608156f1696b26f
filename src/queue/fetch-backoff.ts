/** Functions whose files could not be fetched: each is left alone for a while, ever longer while it goes on. */

/** The first pause; each further one is twice as long, up to the longest. */
const [firstPauseMs, pauseMsMax] = [5000, 300_000];

interface Backoff {
  readonly pauseMs: number;
  readonly untilMs: number;
}

/** Instants are milliseconds on a clock of the caller's. */
export class FetchBackoff {
  readonly #backoffs = new Map<string, Backoff>();

  /** Begins the next pause, and gives its length back. */
  begin(revision: string, nowMs: number): number {
    const before = this.#backoffs.get(revision);
    // Several may have waited for one fetch.
    if (before !== undefined && nowMs < before.untilMs) return before.untilMs - nowMs;
    const pauseMs = before === undefined ? firstPauseMs : Math.min(2 * before.pauseMs, pauseMsMax);
    this.#backoffs.set(revision, { pauseMs, untilMs: nowMs + pauseMs });
    return pauseMs;
  }

  end(revision: string): void {
    this.#backoffs.delete(revision);
  }

  /** Whether its last fetch failed, however long ago. */
  has(revision: string): boolean {
    return this.#backoffs.has(revision);
  }

  isPaused(revision: string, nowMs: number): boolean {
    return nowMs < (this.#backoffs.get(revision)?.untilMs ?? -Infinity);
  }
}
