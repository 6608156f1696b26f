/**
 * One GPU's memory: a single block from the driver, from which weights, activations, workspaces, constants and staging
 * buffers are all cut. Bytes that one frees are available to another at once, without a driver call. If the GPU may
 * still be using freed bytes, fences are kept for them, and the next writer must wait for these.
 *
 * Layers are allocated one by one and can lie anywhere. If enough bytes are free but in pieces, `compact` slides layers
 * and constants together (see compaction.ts), so that only the number of bytes decides whether something fits.
 */
import { CudaError, type CudaDevice, type DeviceAddress, type DeviceMemory } from '../driver/types.ts';
import { RangeAllocator } from './range-allocator.ts';
import type { Fence } from './streams.ts';

export type MemoryPurpose = 'weights' | 'scratch' | 'constants' | 'staging';

/** Some bytes of a GPU's memory. Its address changes when it is moved. */
export class DeviceBlock {
  readonly purpose: MemoryPurpose;
  /** As asked for. */
  readonly bytes: number;
  /** With what alignment adds. */
  readonly size: number;
  address: DeviceAddress;
  /** Must be waited for before the first write. */
  fences: readonly Fence[];
  constructor(purpose: MemoryPurpose, bytes: number, size: number, address: DeviceAddress, fences: readonly Fence[]) {
    this.purpose = purpose;
    this.bytes = bytes;
    this.size = size;
    this.address = address;
    this.fences = fences;
  }
}

interface Guarded {
  readonly low: DeviceAddress;
  readonly high: DeviceAddress;
  readonly fence: Fence;
}

/** The rest stays for the driver and other programs when no limit is given. */
const shareOfFree = 0.92;

export class DevicePool implements Disposable {
  readonly device: CudaDevice;
  readonly #memory: DeviceMemory;
  readonly #ranges: RangeAllocator;
  readonly #blocks = new Set<DeviceBlock>();
  readonly #bytes: Record<MemoryPurpose, number> = { weights: 0, scratch: 0, constants: 0, staging: 0 };
  /** Bytes that were freed while the GPU may still have been using them. */
  #guarded: Guarded[] = [];

  /** @throws CudaError 'out-of-memory' if the device has not that much */
  constructor(device: CudaDevice, limitBytes?: number) {
    this.device = device;
    this.#ranges = new RangeAllocator(limitBytes ?? Math.floor(device.memory().freeBytes * shareOfFree));
    this.#memory = device.allocate(this.#ranges.bytes);
  }

  get limitBytes(): number {
    return this.#ranges.bytes;
  }

  get freeBytes(): number {
    return this.#ranges.freeBytes;
  }

  get largestFreeBytes(): number {
    return this.#ranges.largestFreeBytes;
  }

  bytesFor(purpose: MemoryPurpose): number {
    return this.#bytes[purpose];
  }

  /** Undefined if no hole is large enough. Weights and staging buffers come and go at the low end, the rest is high. */
  allocate(bytes: number, purpose: MemoryPurpose): DeviceBlock | undefined {
    const isShortLived = purpose === 'weights' || purpose === 'staging';
    const range = this.#ranges.allocate(bytes, isShortLived ? 'low' : 'high');
    if (range === undefined) return undefined;
    const address = this.#memory.address + range.offset;
    const block = new DeviceBlock(purpose, bytes, range.bytes, address, this.#fencesOver(address, range.bytes));
    this.#blocks.add(block);
    this.#bytes[purpose] += range.bytes;
    this.device.declareRange(address, range.bytes);
    return block;
  }

  /** @param fences of submitted work that uses the block. */
  free(block: DeviceBlock, fences: readonly (Fence | null)[]): void {
    if (!this.#blocks.delete(block)) throw misuse('a block of device memory was given back twice');
    this.#guard(block.address, block.size, [...fences, ...block.fences]);
    this.device.forgetRange(block.address);
    this.#ranges.free(block.address - this.#memory.address);
    this.#bytes[block.purpose] -= block.size;
  }

  /** Blocks by address. */
  blocks(): DeviceBlock[] {
    return [...this.#blocks].sort((a, b) => a.address - b.address);
  }

  /** How far a block can be moved down, in bytes. */
  wayDown(block: DeviceBlock): number {
    return this.#ranges.holeBelow(block.address - this.#memory.address);
  }

  /** The largest free range above a block, and the fences to wait for before it is written. */
  freeAbove(
    block: DeviceBlock,
  ): { readonly address: DeviceAddress; readonly bytes: number; readonly before: readonly Fence[] } | undefined {
    const hole = this.#ranges.largestHoleAbove(block.address - this.#memory.address);
    if (hole === undefined) return undefined;
    const address = this.#memory.address + hole.offset;
    return { address, bytes: hole.bytes, before: this.#fencesOver(address, hole.bytes) };
  }

  /**
   * Moves a block's address down into the hole below it. The caller copies the bytes after `before`: the fences of what
   * was freed there.
   */
  slideDown(block: DeviceBlock): { readonly from: DeviceAddress; readonly before: readonly Fence[] } | undefined {
    const from = block.address;
    const offset = this.#ranges.slideDown(from - this.#memory.address);
    if (offset === undefined) return undefined;
    this.device.forgetRange(from);
    block.address = this.#memory.address + offset;
    this.device.declareRange(block.address, block.size);
    return { from, before: this.#fencesOver(block.address, block.size) };
  }

  /** The next user of these bytes must wait for the fences. */
  #guard(address: DeviceAddress, bytes: number, fences: readonly (Fence | null)[]): void {
    for (const fence of fences) {
      if (fence !== null && !fence.passed) this.#guarded.push({ low: address, high: address + bytes, fence });
    }
  }

  /** After moves: all free bytes may still be read or written by the moves, and by what these have not waited for. */
  guardFree(fence: Fence): void {
    const others = this.#guarded.filter((each) => !each.fence.passed && !each.fence.isBefore(fence));
    this.#guarded = [...others, { low: this.#memory.address, high: this.#memory.address + this.limitBytes, fence }];
  }

  #fencesOver(address: DeviceAddress, bytes: number): Fence[] {
    if (this.#guarded.length === 0) return [];
    this.#guarded = this.#guarded.filter(({ fence }) => !fence.passed);
    return this.#guarded.filter(({ low, high }) => low < address + bytes && address < high).map(({ fence }) => fence);
  }

  [Symbol.dispose](): void {
    for (const block of this.#blocks) this.device.forgetRange(block.address);
    this.#blocks.clear();
    this.#memory.release();
  }
}

function misuse(message: string): CudaError {
  return new CudaError('misuse', 'DevicePool.free', 0, '', message);
}
