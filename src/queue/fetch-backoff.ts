/** Backoff for functions whose files could not be fetched: a pause after each failure, growing with each. */

/** The first pause, and the longest; each is twice as long as the one before. */
const [firstPauseMs, pauseMsMax] = [5000, 300_000];

interface Backoff {
  readonly pauseMs: number;
  readonly untilMs: number;
}

/** Instants are milliseconds on the caller's clock. */
export class FetchBackoff {
  readonly #backoffs = new Map<string, Backoff>();

  /** Begins the next pause, and returns its length. */
  begin(revision: string, nowMs: number): number {
    const before = this.#backoffs.get(revision);
    // Several callers may have waited for one fetch.
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
