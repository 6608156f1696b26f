/**
 * Memory outside JavaScript's heap for native structures, out-parameters, kernel parameters and names. The driver may
 * keep their addresses, and the garbage collector moves objects in the heap.
 */
import { loadKoffi } from '../../process/index.ts';
import { append, once } from '../../tools/index.ts';

const koffi = loadKoffi();

/** A piece of native memory, freed by `release` or at the end of its `using`. */
export interface NativeBlock extends Disposable {
  readonly address: number;
  readonly bytes: number;
  readonly data: DataView;
  release(): void;
}

const block = (address: number, bytes: number, data: DataView, release: () => void): NativeBlock => ({
  address,
  bytes,
  data,
  release,
  [Symbol.dispose]: release,
});

const chunkBytes = 256 * 1024;
/** A cache line, so that no two blocks share one. */
const blockBytesMin = 64;

interface Chunk {
  readonly address: number;
  readonly memory: ArrayBuffer;
  used: number;
}

/**
 * Allocates zeroed blocks. Those of up to 64 KiB are cut from chunks that live as long as the arena, in sizes that are
 * powers of two.
 */
export class NativeArena {
  readonly #pointers = new Set<bigint>();
  readonly #free = new Map<number, { readonly address: number; readonly memory: ArrayBuffer; readonly at: number }[]>();
  #chunk: Chunk | undefined;

  allocate(bytes: number): NativeBlock {
    let size = blockBytesMin;
    while (size < bytes) size *= 2;
    if (size > chunkBytes / 4) return this.#allocateAlone(bytes);
    const place = this.#free.get(size)?.pop() ?? this.#carve(size);
    new Uint8Array(place.memory, place.at, size).fill(0);
    const release = once(() => append(this.#free, size, place));
    return block(place.address, bytes, new DataView(place.memory, place.at, size), release);
  }

  /** A NUL-terminated string. */
  allocateText(text: string): NativeBlock {
    const encoded = new TextEncoder().encode(text);
    const block = this.allocate(encoded.length + 1);
    new Uint8Array(block.data.buffer, block.data.byteOffset, block.bytes).set(encoded);
    return block;
  }

  /** Frees everything: blocks must not be used any more. */
  release(): void {
    for (const pointer of this.#pointers) koffi.free(pointer);
    this.#pointers.clear();
    this.#free.clear();
    this.#chunk = undefined;
  }

  #carve(size: number): { readonly address: number; readonly memory: ArrayBuffer; readonly at: number } {
    if (this.#chunk === undefined || this.#chunk.used + size > chunkBytes) {
      const { pointer, address, memory } = this.#allocateNative(chunkBytes + blockBytesMin);
      this.#pointers.add(pointer);
      this.#chunk = { address, memory, used: (blockBytesMin - (address % blockBytesMin)) % blockBytesMin };
    }
    const { address, memory, used } = this.#chunk;
    this.#chunk.used += size;
    return { address: address + used, memory, at: used };
  }

  #allocateAlone(bytes: number): NativeBlock {
    const { pointer, address, memory } = this.#allocateNative(bytes);
    this.#pointers.add(pointer);
    new Uint8Array(memory).fill(0);
    return block(address, bytes, new DataView(memory), () => {
      if (this.#pointers.delete(pointer)) koffi.free(pointer);
    });
  }

  #allocateNative(bytes: number): { pointer: bigint; address: number; memory: ArrayBuffer } {
    const pointer = koffi.alloc('uint8_t', bytes) as bigint;
    return { pointer, address: Number(pointer), memory: koffi.view(pointer, bytes) };
  }
}

const two32 = 4294967296;

/** Writes an integer of up to 53 bits (negative ones too) as 64 bits; two halves are faster than a BigInt. */
export function writeInteger64(data: DataView, byteOffset: number, value: number): void {
  data.setUint32(byteOffset, value >>> 0, true);
  data.setInt32(byteOffset + 4, Math.floor(value / two32), true);
}

export function readInteger64(data: DataView, byteOffset: number): number {
  return data.getUint32(byteOffset + 4, true) * two32 + data.getUint32(byteOffset, true);
}

/** The NUL-terminated string in a block. */
export function readText({ data, bytes }: NativeBlock): string {
  const content = new Uint8Array(data.buffer, data.byteOffset, bytes);
  const end = content.indexOf(0);
  return new TextDecoder().decode(content.subarray(0, end === -1 ? bytes : end));
}

/** The NUL-terminated string at an address. */
export function readTextAt(address: number): string {
  return koffi.decode(BigInt(address), 'char', -1) as string;
}
