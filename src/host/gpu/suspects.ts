/**
 * Which function ends the GPU process while it is brought there. Several are at a time: whoever is in hand when the process ends is
 * a suspect, and suspects are brought one at a time, when nobody else is. Who is alone then when it ends is the one, if that happens
 * often enough: the process may as well have ended for another reason.
 */

/** Ends of the process for which nobody else was there to blame. */
const deathsMax = 3;

export class Suspects {
  readonly #inHand = new Set<string>();
  /** Suspects, with the ends of the process for which they alone were there to blame. */
  readonly #deaths = new Map<string, number>();

  /** Whether it may only be brought to the process alone. */
  has(key: string): boolean {
    return this.#deaths.has(key);
  }

  isGuilty(key: string): boolean {
    return (this.#deaths.get(key) ?? 0) >= deathsMax;
  }

  /** The process works for this function until the work is over. */
  async during<T>(key: string, work: () => Promise<T>): Promise<T> {
    this.#inHand.add(key);
    try {
      return await work();
    } finally {
      this.#inHand.delete(key);
    }
  }

  /** The function waits for others: whatever happens meanwhile is not its doing. */
  async apart<T>(key: string, wait: () => Promise<T>): Promise<T> {
    const wasInHand = this.#inHand.delete(key);
    try {
      return await wait();
    } finally {
      if (wasInHand) this.#inHand.add(key);
    }
  }

  /** The process has ended. */
  died(): void {
    const isAlone = this.#inHand.size === 1;
    for (const key of this.#inHand) this.#deaths.set(key, (this.#deaths.get(key) ?? 0) + (isAlone ? 1 : 0));
    this.#inHand.clear();
  }

  /** What it was asked failed as if the process had ended, though it has not. */
  blame(key: string): void {
    this.#deaths.set(key, (this.#deaths.get(key) ?? 0) + 1);
  }

  /** It is there, or it is not wanted any more. */
  clear(key: string): void {
    this.#deaths.delete(key);
  }
}
