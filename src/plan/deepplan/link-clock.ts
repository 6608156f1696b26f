/** Times of copies on a link, in sequence; kernels that read host memory over the same link delay them. */
export interface Span {
  readonly startMs: number;
  readonly endMs: number;
}

export class LinkClock {
  #freeMs = 0;
  readonly #reads: Span[] = [];
  #readsDone = 0;

  /**
   * A kernel reads host memory over the link from `startMs` on; a copy in progress pauses meanwhile. Call this in the
   * order of times, and before the copies that a read may delay.
   */
  read(startMs: number, durationMs: number): void {
    if (durationMs > 0) this.#reads.push({ startMs, endMs: startMs + durationMs });
  }

  /** The next copy, not before `earliestMs`. */
  copy(earliestMs: number, durationMs: number): Span {
    let startMs = Math.max(this.#freeMs, earliestMs);
    let endMs = startMs + durationMs;
    for (;;) {
      const read = this.#reads[this.#readsDone];
      if (read === undefined || read.startMs >= endMs) break;
      if (read.startMs <= startMs) {
        startMs = Math.max(startMs, read.endMs);
        endMs = startMs + durationMs;
      } else {
        endMs += read.endMs - read.startMs;
      }
      this.#readsDone++;
    }
    this.#freeMs = endMs;
    return { startMs, endMs };
  }
}
