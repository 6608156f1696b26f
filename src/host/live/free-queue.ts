/**
 * Pending frees per GPU. The scheduler has evicted these layers; a new load waits until they are freed, in order.
 */
export class FreeQueue {
  readonly #latest: Promise<unknown>[];
  readonly #onFailure: (gpu: number, key: string, error: unknown) => void;
  /** Counts lost processes: frees queued for one are void for the next. */
  #epoch = 0;

  /** @param onFailure called when the GPU process failed to free, and still lives */
  constructor(gpuCount: number, onFailure: (gpu: number, key: string, error: unknown) => void) {
    this.#latest = Array.from({ length: gpuCount }, () => Promise.resolve());
    this.#onFailure = onFailure;
  }

  /** @param key the function that owns the bytes */
  order(gpu: number, key: string, free: () => Promise<number>): void {
    const epoch = this.#epoch;
    const freed = this.#latest[gpu]!.then(() => (epoch === this.#epoch ? free() : 0));
    this.#latest[gpu] = freed.catch((error: unknown) => {
      if (epoch === this.#epoch) this.#onFailure(gpu, key, error);
    });
  }

  /** Resolves when everything ordered for this GPU so far is free. */
  async over(gpu: number): Promise<void> {
    await this.#latest[gpu];
  }

  async allOver(): Promise<void> {
    await Promise.all(this.#latest);
  }

  /** The process is gone, and its memory with it. */
  lost(): void {
    this.#epoch++;
    for (const gpu of this.#latest.keys()) this.#latest[gpu] = Promise.resolve();
  }
}
