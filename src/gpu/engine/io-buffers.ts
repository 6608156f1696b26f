import type { Cuda, PinnedKind } from '../driver/types.ts';
import { PinnedPool } from './pinned-pool.ts';

/** Pinned memory of one run's inputs and outputs. */
export type IoBuffer = Awaited<ReturnType<IoBuffers['allocate']>>;

const mebibyte = 2 ** 20;
/**
 * Most inputs and outputs are small, and many runs share one slab. Slabs of large ones are kept for the next run, up to
 * the budget.
 */
const budgetBytes = 256 * mebibyte;
const slabBytes = 4 * mebibyte;

/** Pinned buffers for inputs and outputs of runs. */
export class IoBuffers extends PinnedPool {
  constructor(cuda: Cuda, kind: PinnedKind, relieve: () => boolean) {
    super(cuda, { budgetBytes, slabBytes, kind, relieve });
  }

  /** Pins further memory on another thread if needed. @throws CudaError */
  async allocate(bytes: number) {
    const range = await this.takeSoon(bytes);
    return {
      address: range.address,
      view: range.view(0, bytes),
      [Symbol.dispose]: () => {
        range.free();
        this.trim(budgetBytes);
      },
    };
  }
}
