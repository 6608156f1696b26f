/** Work that is done a few at a time, in the order in which it was given; or alone, when nothing else is to be done. */
export class Turns {
  readonly #atOnce: number;
  readonly #waiting: (() => void)[] = [];
  readonly #lonersWaiting: (() => void)[] = [];
  #busy = 0;
  #isAlone = false;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Resolves, or rejects, as the work does. Work that is to be alone lets all other work go first. */
  async take<T>(work: () => Promise<T>, isAlone = false): Promise<T> {
    if (this.#mayStart(isAlone)) this.#begin(isAlone);
    else await new Promise<void>((resolve) => (isAlone ? this.#lonersWaiting : this.#waiting).push(resolve));
    try {
      return await work();
    } finally {
      this.#busy--;
      this.#isAlone = false;
      this.#next();
    }
  }

  #mayStart(isAlone: boolean): boolean {
    if (isAlone) return this.#busy === 0 && this.#waiting.length === 0;
    return !this.#isAlone && this.#busy < this.#atOnce;
  }

  #begin(isAlone: boolean): void {
    this.#busy++;
    this.#isAlone = isAlone;
  }

  /** Whoever is next has the turn at once, without another coming between. */
  #next(): void {
    while (this.#waiting.length > 0 && this.#mayStart(false)) {
      this.#begin(false);
      this.#waiting.shift()!();
    }
    if (this.#lonersWaiting.length > 0 && this.#mayStart(true)) {
      this.#begin(true);
      this.#lonersWaiting.shift()!();
    }
  }
}
