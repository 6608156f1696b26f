/** Frees of GPU memory that the GPU process has not confirmed yet. */
import type { GpuId } from '../schedule/index.ts';
export class PendingFrees {
  readonly #onFailure: (gpu: GpuId, key: string, error: unknown) => void;
  #latestFree: Promise<unknown> = Promise.resolve();
  /** Counts lost processes: nothing is told about the frees of an earlier one. */
  #epoch = 0;

  /** @param onFailure called when the GPU process failed to free, and still lives */
  constructor(onFailure: (gpu: GpuId, key: string, error: unknown) => void) {
    this.#onFailure = onFailure;
  }

  /** @param key the function that owns the bytes */
  add(gpu: GpuId, key: string, freed: Promise<number>): void {
    const [epoch, before] = [this.#epoch, this.#latestFree];
    const settled = freed.catch((error: unknown) => {
      if (epoch === this.#epoch) this.#onFailure(gpu, key, error);
    });
    this.#latestFree = settled.then(() => before);
  }

  /** Resolves when everything asked for so far is free. */
  async over(): Promise<void> {
    await this.#latestFree;
  }

  /** The process is gone, and its memory with it. */
  lost(): void {
    this.#epoch++;
    this.#latestFree = Promise.resolve();
  }
}
