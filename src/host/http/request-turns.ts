/** With all that follows on them before the event loop turns, some milliseconds of work. */
const requestsPerTurnMax = 32;

/**
 * Requests that come at once are begun a few in each turn of the event loop, in their order, so that the calls that are
 * under way go on between them. A thousand new connections would stop those for some tenths of a second.
 */
export class RequestTurns {
  readonly #waiting: (() => void)[] = [];
  #hasBegun = false;
  #left = requestsPerTurnMax;

  begin(request: () => void): void {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      setImmediate(this.#turn);
    }
    if (this.#left > 0) {
      this.#left--;
      request();
    } else this.#waiting.push(request);
  }

  readonly #turn = (): void => {
    this.#left = requestsPerTurnMax;
    this.#hasBegun = this.#waiting.length > 0;
    if (!this.#hasBegun) return;
    setImmediate(this.#turn);
    for (const request of this.#waiting.splice(0, requestsPerTurnMax)) {
      this.#left--;
      request();
    }
  };
}
