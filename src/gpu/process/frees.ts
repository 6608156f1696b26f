/** Frees of GPU memory in the order in which they were asked for: a later run or load begins after them. */
export class Frees {
  /** By GPU. */
  readonly #latest = new Map<number, Promise<unknown>>();

  /** Frees after all earlier ones of this GPU. */
  async add(gpu: number, free: () => Promise<number>): Promise<number> {
    const freed = this.over(gpu).then(free);
    this.#latest.set(
      gpu,
      freed.catch(() => undefined),
    );
    return await freed;
  }

  /** Resolves when everything asked for so far is free. */
  async over(gpu: number): Promise<void> {
    await this.#latest.get(gpu);
  }
}
