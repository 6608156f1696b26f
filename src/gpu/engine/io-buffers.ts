import type { Cuda, DeviceAddress, PinnedKind } from '../driver/types.ts';
import { PinnedPool } from './pinned-pool.ts';

/** Pinned memory of one run's inputs and outputs. */
export interface IoBuffer extends Disposable {
  readonly address: DeviceAddress;
  readonly view: Uint8Array;
}

const mebibyte = 2 ** 20;
/**
 * Most inputs and outputs are small: many runs share one slab. Those of large ones are kept for the next run, up to the
 * budget.
 */
const budgetBytes = 256 * mebibyte;
const slabBytes = 4 * mebibyte;

/** Pinned buffers for what runs take and give. */
export class IoBuffers extends PinnedPool {
  constructor(cuda: Cuda, kind: PinnedKind, relieve: () => boolean) {
    super(cuda, { budgetBytes, slabBytes, kind, relieve });
  }

  /** What has to be pinned for it is pinned on another thread. @throws CudaError */
  async allocate(bytes: number): Promise<IoBuffer> {
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
