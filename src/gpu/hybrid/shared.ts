/** A hybrid program that several runs use at once, and that whoever made it may give up meanwhile. */
import type { OpenHybrid } from './open.ts';

export class SharedHybrid {
  readonly #opening: Promise<OpenHybrid>;
  readonly #running = new Set<Promise<unknown>>();

  constructor(opening: Promise<OpenHybrid>) {
    this.#opening = opening;
    // Whoever uses it is told.
    opening.catch(() => undefined);
  }

  /** From this call on it stays open for `act`. @throws what opening or `act` throws */
  async use<Result>(act: (open: OpenHybrid) => Promise<Result>): Promise<Result> {
    const running = this.#opening.then(act);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Gives its kernels and sub-graphs back once all that use it have ended. It must not be used any more. */
  async retire(): Promise<void> {
    await Promise.allSettled(this.#running);
    await this.#opening.then((open) => open.close()).catch(() => undefined);
  }
}
