/**
 * Caches the latest answer to a question. Concurrent callers share one request; if it is not answered in time, they get
 * the previous answer.
 */
export class Latest<T> {
  readonly #ask: () => Promise<T | undefined>;
  readonly #waitMs: number;
  #asking: Promise<T | undefined> | undefined;
  last: T | undefined;

  constructor(ask: () => Promise<T | undefined>, waitMs: number) {
    this.#ask = ask;
    this.#waitMs = waitMs;
  }

  fresh(): Promise<T | undefined> {
    this.#asking ??= new Promise((resolve) => {
      const late = setTimeout(() => resolve(this.last), this.#waitMs);
      const take = async (): Promise<void> => {
        this.last = await this.#ask();
        clearTimeout(late);
        // From now on the next caller asks again.
        this.#asking = undefined;
        resolve(this.last);
      };
      void take();
    });
    return this.#asking;
  }
}
