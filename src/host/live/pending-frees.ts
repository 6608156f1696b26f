/** Frees per GPU that the GPU process has not confirmed yet. */
export class PendingFrees {
  readonly #latest: Promise<unknown>[];
  readonly #onFailure: (gpu: number, key: string, error: unknown) => void;
  /** Counts lost processes: nothing is told about the frees of an earlier one. */
  #epoch = 0;

  /** @param onFailure called when the GPU process failed to free, and still lives */
  constructor(gpuCount: number, onFailure: (gpu: number, key: string, error: unknown) => void) {
    this.#latest = Array.from({ length: gpuCount }, () => Promise.resolve());
    this.#onFailure = onFailure;
  }

  /** @param key the function that owns the bytes */
  add(gpu: number, key: string, freed: Promise<number>): void {
    const epoch = this.#epoch;
    const settled = freed.catch((error: unknown) => {
      if (epoch === this.#epoch) this.#onFailure(gpu, key, error);
    });
    this.#latest[gpu] = Promise.all([this.#latest[gpu], settled]);
  }

  /** Resolves when everything asked for on this GPU so far is free. */
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
