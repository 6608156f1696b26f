/** Small against an SLO. */
const sliceMs = 8;

/**
 * Requests that come at once are begun in slices, in their order: between two of them the calls that are under way go
 * on. A thousand new connections would stop them for a tenth of a second.
 */
export class RequestTurns {
  readonly #waiting: (() => void)[] = [];
  /** End of the slice of this turn of the event loop; 0 before its first request. */
  #endMs = 0;

  begin(request: () => void): void {
    if (this.#endMs === 0) {
      this.#endMs = performance.now() + sliceMs;
      setImmediate(this.#turn);
    } else if (this.#waiting.length > 0 || performance.now() > this.#endMs) {
      this.#waiting.push(request);
      return;
    }
    request();
  }

  readonly #turn = (): void => {
    this.#endMs = 0;
    if (this.#waiting.length === 0) return;
    this.#endMs = performance.now() + sliceMs;
    setImmediate(this.#turn);
    do this.#waiting.shift()!();
    while (this.#waiting.length > 0 && performance.now() < this.#endMs);
  };
}
