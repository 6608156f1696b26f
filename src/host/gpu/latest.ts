/**
 * What was answered last, asked for once where several ask at the same time; of who does not answer in time, the answer
 * before.
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
        // Until now nobody who asked was kept waiting a second time.
        this.#asking = undefined;
        resolve(this.last);
      };
      void take();
    });
    return this.#asking;
  }
}
