/** A hybrid program that several runs share, and that may be retired while they run. */
import type { OpenHybrid } from './open.ts';

export class SharedHybrid {
  readonly #opening: Promise<OpenHybrid>;
  readonly #running = new Set<Promise<unknown>>();

  constructor(opening: Promise<OpenHybrid>) {
    this.#opening = opening;
    // Each `use` throws the error.
    opening.catch(() => undefined);
  }

  /** Keeps the program open until `act` has ended. @throws the error of opening or of `act` */
  async use<Result>(act: (open: OpenHybrid) => Promise<Result>): Promise<Result> {
    const running = this.#opening.then(act);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Frees kernels and sub-graphs once all uses have ended. Must not be used any more. */
  async retire(): Promise<void> {
    await Promise.allSettled(this.#running);
    await this.#opening.then((open) => open.close()).catch(() => undefined);
  }
}
