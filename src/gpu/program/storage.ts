/** Storages: the memory that buffers are parts of, before it has addresses. */
import type { DataType } from '../../tensor/index.ts';
import type { Buffer } from '../operators/types.ts';

export type Storage =
  | { readonly kind: 'weight'; readonly weight: number; readonly bytes: number }
  | { readonly kind: 'constant'; readonly data: Uint8Array; readonly bytes: number }
  /** `kept`: the type of the elements in memory, if not that of the graph. */
  | { readonly kind: 'activation'; readonly bytes: number; readonly kept?: DataType | undefined };

export class Storages {
  readonly #all: Storage[] = [];

  add(storage: Storage): Buffer {
    this.#all.push(storage);
    return { id: this.#all.length - 1, byteOffset: 0, bytes: storage.bytes };
  }

  activation(bytes: number, kept?: DataType): Buffer {
    return this.add({ kind: 'activation', bytes, kept });
  }

  of({ id }: Pick<Buffer, 'id'>): Storage {
    const storage = this.#all[id];
    if (storage === undefined) throw new RangeError(`there is no storage ${id}`);
    return storage;
  }
}

/** Part of a buffer. */
export function partOf(buffer: Buffer, byteOffset: number, bytes: number): Buffer {
  if (byteOffset < 0 || bytes < 0 || byteOffset + bytes > buffer.bytes) {
    throw new RangeError(`bytes ${byteOffset} to ${byteOffset + bytes} are not in a buffer of ${buffer.bytes}`);
  }
  return { id: buffer.id, byteOffset: buffer.byteOffset + byteOffset, bytes };
}
