import type { Cuda, DeviceAddress, HostMemory } from '../driver/types.ts';
import { RangeAllocator } from './range-allocator.ts';

/** Pinned memory of one run's inputs and outputs. */
export interface IoBuffer extends Disposable {
  readonly address: DeviceAddress;
  readonly view: Uint8Array;
}

interface Piece {
  readonly memory: HostMemory;
  readonly view: Uint8Array;
  readonly ranges: RangeAllocator;
}

/** Inputs and outputs are small: many runs share one piece of pinned memory. */
const pieceBytes = 4 * 2 ** 20;

/** Pinned buffers for what runs take and give. Pieces are kept for the next run, except those made for an unusually large one. */
export class IoBuffers implements Disposable {
  readonly #cuda: Cuda;
  readonly #pieces: Piece[] = [];

  constructor(cuda: Cuda) {
    this.#cuda = cuda;
  }

  allocate(bytes: number): IoBuffer {
    for (const piece of this.#pieces) {
      const range = piece.ranges.allocate(bytes);
      if (range !== undefined) return this.#buffer(piece, range.offset, bytes);
    }
    const memory = this.#cuda.allocateHost(Math.max(pieceBytes, Math.ceil(bytes / 4096) * 4096));
    const piece = { memory, view: memory.view(0, memory.bytes), ranges: new RangeAllocator(memory.bytes) };
    this.#pieces.push(piece);
    return this.#buffer(piece, piece.ranges.allocate(bytes)!.offset, bytes);
  }

  #buffer(piece: Piece, offset: number, bytes: number): IoBuffer {
    return {
      address: piece.memory.address + offset,
      view: piece.view.subarray(offset, offset + bytes),
      [Symbol.dispose]: () => {
        piece.ranges.free(offset);
        if (piece.ranges.usedBytes > 0 || piece.memory.bytes <= pieceBytes) return;
        this.#pieces.splice(this.#pieces.indexOf(piece), 1);
        piece.memory.release();
      },
    };
  }

  [Symbol.dispose](): void {
    for (const { memory } of this.#pieces) memory.release();
    this.#pieces.length = 0;
  }
}
