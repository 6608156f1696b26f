/** How much of what is known already a new observation leaves. */
const kept = 0.8;

/**
 * A figure of each function that may never have been measured: what was observed, else what its offer says, else the
 * mean of the functions that were observed, else nothing at all, so that the first invocation is sent and teaches it.
 */
export class Learnt {
  readonly #values = new Map<number, number>();
  #mean = 0;

  of(functionIndex: number, offered: number | undefined): number {
    return offered ?? this.#values.get(functionIndex) ?? this.#mean;
  }

  observe(functionIndex: number, value: number): void {
    const before = this.#values.get(functionIndex);
    this.#values.set(functionIndex, before === undefined ? value : before * kept + value * (1 - kept));
    this.#mean = this.#mean === 0 ? value : this.#mean * kept + value * (1 - kept);
  }

  forget(functionIndex: number): void {
    this.#values.delete(functionIndex);
  }
}
