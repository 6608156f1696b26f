/**
 * Pinned host memory in slabs, from which ranges are cut. Pinning is slow, so an empty slab is kept until others need
 * its bytes.
 */
import { CudaError, type Cuda, type DeviceAddress, type HostMemory, type PinnedKind } from '../driver/types.ts';
import { RangeAllocator } from './range-allocator.ts';

/** Limit of one view: koffi aborts the process on one of 4 GiB. */
export const viewBytesMax = 2 ** 30;
const pageBytes = 4096;
const mebibyte = 2 ** 20;

export interface PinnedPoolOptions {
  /** Limit of pinned bytes that are kept, at the start. */
  readonly budgetBytes: number;
  /** Bytes that are pinned at a time; a larger range gets its own slab. */
  readonly slabBytes: number;
  readonly kind: PinnedKind;
  /** Makes others free memory that they only cache, when the system has no more to pin. True if some was freed. */
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

  /** Whether both were pinned at once: the driver refuses a copy over two pinned regions, though they may adjoin. */
  isPinnedWith(other: PinnedRange): boolean {
    return this.#slab === other.#slab;
  }

  isOf(slab: Slab): boolean {
    return this.#slab === slab;
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
  #budgetBytes: number;

  constructor(cuda: Cuda, options: PinnedPoolOptions) {
    this.#cuda = cuda;
    this.#options = options;
    this.#budgetBytes = options.budgetBytes;
  }

  get budgetBytes(): number {
    return this.#budgetBytes;
  }

  get pinnedBytes(): number {
    return this.#slabs.reduce((sum, { memory }) => sum + memory.bytes, 0);
  }

  get usedBytes(): number {
    return this.#slabs.reduce((sum, { ranges }) => sum + ranges.usedBytes, 0);
  }

  /** The largest range that could be taken now, once slabs are pinned for what the budget leaves. */
  get largestFreeBytes(): number {
    const usedSlabBytes = this.#slabs.reduce((sum, { memory, isEmpty }) => sum + (isEmpty ? 0 : memory.bytes), 0);
    return Math.max(0, this.#budgetBytes - usedSlabBytes, ...this.#slabs.map(({ ranges }) => ranges.largestFreeBytes));
  }

  resize(budgetBytes: number): void {
    this.#budgetBytes = budgetBytes;
  }

  /** Frees empty slabs beyond the budget, on another thread. */
  async shrink(): Promise<void> {
    await this.trimAside(() => this.pinnedBytes > this.#budgetBytes);
  }

  /** A range of an existing slab. @param near of its slab if there is room */
  take(bytes: number, near?: PinnedRange): PinnedRange | undefined {
    const first = this.#slabs.find((slab) => near?.isOf(slab));
    for (const slab of first === undefined ? this.#slabs : [first, ...this.#slabs]) {
      const range = slab.ranges.allocate(bytes);
      if (range !== undefined) return new PinnedRange(slab, range.offset);
    }
    return undefined;
  }

  /**
   * Pins a slab with room for so many bytes, on another thread, and frees empty slabs that are too small. False if the
   * budget or the system has not that much. One call at a time. @throws CudaError if nothing at all can be pinned
   */
  async grow(bytes: number): Promise<boolean> {
    const leftBytes = (): number => this.#budgetBytes - this.pinnedBytes;
    while (leftBytes() < bytes) if (!(await this.#releaseEmpty())) return false;
    const slabBytes = Math.max(bytes, Math.min(this.#options.slabBytes, leftBytes()));
    try {
      this.#slabs.push(await this.#pin(whole(slabBytes)));
      return true;
    } catch (error) {
      // The system can pin less than the budget: use what there is.
      if (isShortage(error) && this.#slabs.length > 0) return false;
      throw error;
    }
  }

  /** Frees empty slabs, and what others only cache, as long as the system has no more to pin. @throws CudaError */
  async #pin(bytes: number): Promise<Slab> {
    for (;;) {
      try {
        return new Slab(await this.#cuda.allocateHostAside(bytes, this.#options.kind));
      } catch (error) {
        if (!isShortage(error) || !((await this.#releaseEmpty()) || this.#options.relieve())) throw error;
      }
    }
  }

  /**
   * A range for a caller that cannot wait for others to free theirs, over the budget if necessary. `trim` then frees it
   * later.
   */
  async takeSoon(bytes: number): Promise<PinnedRange> {
    const found = this.take(bytes);
    if (found !== undefined) return found;
    const { slabBytes: stepBytes } = this.#options;
    const slabBytes = Math.ceil(bytes / stepBytes) * stepBytes;
    while (this.pinnedBytes + slabBytes > this.#budgetBytes) if (!(await this.#releaseEmpty())) break;
    const slab = await this.#pin(slabBytes);
    this.#slabs.push(slab);
    return new PinnedRange(slab, slab.ranges.allocate(bytes)!.offset);
  }

  /** Frees empty slabs until no more than so many bytes are pinned, because others need them. True if it freed one. */
  trim(keepBytes = 0): boolean {
    const before = this.#slabs.length;
    for (const slab of this.#slabs.filter(({ isEmpty }) => isEmpty)) {
      if (this.pinnedBytes <= keepBytes) break;
      this.#slabs.splice(this.#slabs.indexOf(slab), 1);
      slab.memory.release();
    }
    return this.#slabs.length < before;
  }

  /** Frees empty slabs on another thread, one after the other, for as long as nothing needs them. */
  async trimAside(isUnused: () => boolean): Promise<void> {
    while (isUnused()) if (!(await this.#releaseEmpty())) return;
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

const ioBudgetBytes = 256 * mebibyte;
const ioSlabBytes = 4 * mebibyte;

/** Pinned memory of one run's inputs and outputs. */
export type IoBuffer = Awaited<ReturnType<IoBuffers['allocate']>>;

/**
 * Pinned buffers for inputs and outputs of runs. Most are small, and many runs share one slab. Slabs of large ones are
 * kept for the next run, up to the budget.
 */
export class IoBuffers extends PinnedPool {
  constructor(cuda: Cuda, kind: PinnedKind, relieve: () => boolean) {
    super(cuda, { budgetBytes: ioBudgetBytes, slabBytes: ioSlabBytes, kind, relieve });
  }

  /** So many bytes for inputs and outputs are pinned elsewhere: these are not kept here. */
  pinnedElsewhere(bytes: number): void {
    this.resize(ioBudgetBytes - bytes);
  }

  /** Pins further memory on another thread if needed. @throws CudaError */
  async allocate(bytes: number) {
    const range = await this.takeSoon(bytes);
    return {
      address: range.address,
      view: range.view(0, bytes),
      [Symbol.dispose]: () => {
        range.free();
        this.trim(this.budgetBytes);
      },
    };
  }
}

const isShortage = (error: unknown): boolean => error instanceof CudaError && error.code === 'out-of-memory';

const whole = (bytes: number): number => Math.ceil(bytes / pageBytes) * pageBytes;
