/**
 * Holds one thing at a time to a limit. Its timer is refreshed, and goes on where there is nothing to hold: making a
 * new one for every run costs more than the rest.
 */
export class Watchdog {
  #timer: NodeJS.Timeout | undefined;
  #limitMs = 0;
  #dueMs = 0;
  #expired: (() => void) | undefined;
  #look: NodeJS.Immediate | undefined;
  #grace: NodeJS.Timeout | undefined;

  /** From now on, this is what is held to a limit. */
  arm(limitMs: number, expired: () => void): void {
    this.#expired = expired;
    this.#dueMs = performance.now() + limitMs;
    this.#endGrace();
    if (this.#timer !== undefined && this.#limitMs === limitMs) {
      this.#timer.refresh();
      return;
    }
    clearTimeout(this.#timer);
    this.#limitMs = limitMs;
    // What it watches has a channel, which is what keeps this process from ending.
    this.#timer = setTimeout(() => this.#pass(), limitMs).unref();
  }

  disarm(): void {
    this.#expired = undefined;
    this.#endGrace();
  }

  /**
   * Timers come before sockets. When this process itself was stopped or busy, the answer may lie in a socket, unread:
   * it gets as long to be read as this process was late.
   */
  #pass(): void {
    if (this.#expired === undefined) return;
    const lateMs = performance.now() - this.#dueMs;
    this.#look = setImmediate(() => {
      this.#grace = setTimeout(() => this.#expired?.(), lateMs);
    });
  }

  #endGrace(): void {
    clearImmediate(this.#look);
    clearTimeout(this.#grace);
  }
}
