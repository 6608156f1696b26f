/**
 * Pinned host memory in slabs, from which ranges are cut. To pin is slow, so a slab that has become empty is kept,
 * until others need its bytes.
 */
import { CudaError, type Cuda, type DeviceAddress, type HostMemory, type PinnedKind } from '../driver/types.ts';
import { RangeAllocator } from './range-allocator.ts';

/** One view is at most this large: koffi aborts the process on one of 4 GiB. */
export const viewBytesMax = 2 ** 30;
const pageBytes = 4096;

export interface PinnedPoolOptions {
  /** Most bytes that are pinned and kept. */
  readonly budgetBytes: number;
  /** Bytes that are pinned at a time; a range that is larger gets a slab of its own. */
  readonly slabBytes: number;
  readonly kind: PinnedKind;
  /**
   * Has others free what they keep without need, when the system has nothing more to pin. True where something was
   * freed.
   */
  readonly relieve: () => boolean;
}

class Slab {
  readonly memory: HostMemory;
  readonly ranges: RangeAllocator;

  constructor(memory: HostMemory) {
    this.memory = memory;
    this.ranges = new RangeAllocator(memory.bytes);
  }

  get isEmpty(): boolean {
    return this.ranges.usedBytes === 0;
  }
}

/** Some bytes of pinned memory. */
export class PinnedRange {
  readonly #slab: Slab;
  readonly #offset: number;

  constructor(slab: Slab, offset: number) {
    this.#slab = slab;
    this.#offset = offset;
  }

  get address(): DeviceAddress {
    return this.#slab.memory.address + this.#offset;
  }

  view(byteOffset: number, bytes: number): Uint8Array {
    return this.#slab.memory.view(this.#offset + byteOffset, bytes);
  }

  free(): void {
    this.#slab.ranges.free(this.#offset);
  }
}

export class PinnedPool implements Disposable {
  readonly #cuda: Cuda;
  readonly #options: PinnedPoolOptions;
  readonly #slabs: Slab[] = [];

  constructor(cuda: Cuda, options: PinnedPoolOptions) {
    this.#cuda = cuda;
    this.#options = options;
  }

  get pinnedBytes(): number {
    return this.#slabs.reduce((sum, { memory }) => sum + memory.bytes, 0);
  }

  get usedBytes(): number {
    return this.#slabs.reduce((sum, { ranges }) => sum + ranges.usedBytes, 0);
  }

  /** A range of a slab that is there. */
  take(bytes: number): PinnedRange | undefined {
    for (const slab of this.#slabs) {
      const range = slab.ranges.allocate(bytes);
      if (range !== undefined) return new PinnedRange(slab, range.offset);
    }
    return undefined;
  }

  /**
   * Pins a slab that has room for so many bytes, on another thread; empty ones that are too small go for it. False
   * where the budget or the system has not that much. One call at a time. @throws CudaError where nothing at all can be
   * pinned
   */
  async grow(bytes: number): Promise<boolean> {
    const leftBytes = (): number => this.#options.budgetBytes - this.pinnedBytes;
    while (leftBytes() < bytes) if (!(await this.#releaseEmpty())) return false;
    const slabBytes = Math.max(bytes, Math.min(this.#options.slabBytes, leftBytes()));
    for (;;) {
      try {
        this.#slabs.push(new Slab(await this.#cuda.allocateHostAside(whole(slabBytes), this.#options.kind)));
        return true;
      } catch (error) {
        if (!isShortage(error)) throw error;
        if ((await this.#releaseEmpty()) || this.#options.relieve()) continue;
        // The system has less to pin than the budget says: go by what there is.
        if (this.#slabs.length > 0) return false;
        throw error;
      }
    }
  }

  /**
   * A range for what cannot wait for others to free theirs: beyond the budget where it must be. Then `trim` frees it
   * later.
   */
  async takeSoon(bytes: number): Promise<PinnedRange> {
    const found = this.take(bytes);
    if (found !== undefined) return found;
    const { slabBytes: stepBytes, budgetBytes } = this.#options;
    const slabBytes = Math.ceil(bytes / stepBytes) * stepBytes;
    while (this.pinnedBytes + slabBytes > budgetBytes) if (!(await this.#releaseEmpty())) break;
    for (;;) {
      try {
        const slab = new Slab(await this.#cuda.allocateHostAside(slabBytes, this.#options.kind));
        this.#slabs.push(slab);
        return new PinnedRange(slab, slab.ranges.allocate(bytes)!.offset);
      } catch (error) {
        if (!isShortage(error) || !this.#options.relieve()) throw error;
      }
    }
  }

  /** Frees empty slabs until no more than so many bytes are pinned: others need them. True where it freed one. */
  trim(keepBytes = 0): boolean {
    const before = this.#slabs.length;
    for (const slab of this.#slabs.filter(({ isEmpty }) => isEmpty)) {
      if (this.pinnedBytes <= keepBytes) break;
      this.#slabs.splice(this.#slabs.indexOf(slab), 1);
      slab.memory.release();
    }
    return this.#slabs.length < before;
  }

  /** Frees one slab on another thread. */
  async #releaseEmpty(): Promise<boolean> {
    const index = this.#slabs.findIndex(({ isEmpty }) => isEmpty);
    const [slab] = index === -1 ? [] : this.#slabs.splice(index, 1);
    await slab?.memory.releaseAside();
    return slab !== undefined;
  }

  [Symbol.dispose](): void {
    for (const { memory } of this.#slabs.splice(0)) memory.release();
  }
}

const isShortage = (error: unknown): boolean => error instanceof CudaError && error.kind === 'out-of-memory';

const whole = (bytes: number): number => Math.ceil(bytes / pageBytes) * pageBytes;
