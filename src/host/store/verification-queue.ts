/** Which stored version is hashed next after a start: those that a caller waits for, then the smallest. */

interface Waiting {
  readonly name: string;
  readonly version: string;
  readonly bytes: number;
}

export class VerificationQueue {
  /** By `name@version`. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #wanted = new Set<string>();
  /** Largest first, so that the smallest is popped; undefined if something was added since. */
  #ordered: string[] | undefined;

  add(name: string, version: string, bytes: number): void {
    this.#waiting.set(`${name}@${version}`, { name, version, bytes });
    this.#ordered = undefined;
  }

  /** Moves a version to the front; does nothing if it is not waiting. */
  hurry(key: string): void {
    if (this.#waiting.has(key)) this.#wanted.add(key);
  }

  next(): Waiting | undefined {
    const [wanted] = this.#wanted;
    if (wanted !== undefined) return this.#take(wanted);
    this.#ordered ??= [...this.#waiting].sort(([, a], [, b]) => b.bytes - a.bytes).map(([key]) => key);
    for (let key = this.#ordered.pop(); key !== undefined; key = this.#ordered.pop()) {
      const taken = this.#take(key);
      if (taken !== undefined) return taken;
    }
    return undefined;
  }

  clear(): void {
    this.#waiting.clear();
    this.#wanted.clear();
  }

  #take(key: string): Waiting | undefined {
    const taken = this.#waiting.get(key);
    this.#waiting.delete(key);
    this.#wanted.delete(key);
    return taken;
  }
}
