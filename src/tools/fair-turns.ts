/**
 * Permits for the work of many callers: one at a time for each caller, and callers in rotation. So no caller waits for
 * more than one piece of another's work.
 */
export class FairTurns {
  readonly #permits: number;
  readonly #working = new Set<string>();
  /** In the order in which they are served next. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor(permits: number) {
    this.#permits = permits;
  }

  /** Resolves with a lease when it is the caller's turn. Rejects with the signal's reason if it aborts before. */
  async lock(caller: string, signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const line = this.#waiting.get(caller) ?? [];
      const enter = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        line.splice(line.indexOf(enter), 1);
        if (line.length === 0) this.#waiting.delete(caller);
        reject(signal.reason as Error);
      };
      line.push(enter);
      this.#waiting.set(caller, line);
      signal.addEventListener('abort', leave, { once: true });
      this.#serve();
    });
    return {
      [Symbol.dispose]: () => {
        this.#working.delete(caller);
        // Callers that wait already go first.
        const line = this.#waiting.get(caller);
        if (line !== undefined && this.#waiting.delete(caller)) this.#waiting.set(caller, line);
        this.#serve();
      },
    };
  }

  #serve(): void {
    for (const [caller, line] of this.#waiting) {
      if (this.#working.size >= this.#permits) return;
      if (this.#working.has(caller)) continue;
      this.#working.add(caller);
      line.shift()?.();
      if (line.length === 0) this.#waiting.delete(caller);
    }
  }
}
