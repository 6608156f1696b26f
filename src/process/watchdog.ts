/**
 * Applies a time limit to one thing at a time. Its timer is refreshed and keeps running between them: a new timer for
 * every run would cost more than the rest.
 */
export class Watchdog {
  #timer: NodeJS.Timeout | undefined;
  #limitMs = 0;
  #dueMs = 0;
  #expired: (() => void) | undefined;
  #look: NodeJS.Immediate | undefined;
  #grace: NodeJS.Timeout | undefined;

  /** From now on the limit applies to this. */
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
    // The watched process has a channel, which keeps this process running.
    this.#timer = setTimeout(() => this.#pass(), limitMs).unref();
  }

  disarm(): void {
    this.#expired = undefined;
    this.#endGrace();
  }

  /**
   * Timers run before sockets. If this process itself was stopped or busy, the answer may be unread in a socket: it
   * gets as much time to be read as this process was late.
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
