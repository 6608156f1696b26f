/**
 * Frees memory after its last reader. V8 frees a buffer only when it collects it, and collects more often the more
 * buffers there are: with 602 KB in and out, that was more than half of what a call cost the host.
 */
import * as workerThreads from 'node:worker_threads';
import { Lent } from './lent.ts';
import { bytesToSend, type Tensor } from './tensor.ts';

/** Below this, sending a buffer away costs as much as collecting it. */
export const freedBytesMin = 16 * 1024;

const nowhere = new workerThreads.MessageChannel().port1;
nowhere.close();

/**
 * Node marks the pool that small buffers are cut from, which has up to 64 KiB. Node 20 cannot be asked: it leaves what is
 * marked where it is, and later versions throw.
 */
const { isMarkedAsUntransferable: isShared = () => false } = workerThreads as {
  readonly isMarkedAsUntransferable?: (buffer: ArrayBufferLike) => boolean;
};

/**
 * A buffer that was sent away has no memory any more, and at a closed port what arrives is freed at once. Does nothing for
 * memory that others have parts of.
 */
export function free(buffer: ArrayBufferLike): void {
  if (!isShared(buffer)) nowhere.postMessage(null, [buffer as ArrayBuffer]);
}

/** Buffers that something reads after the end of their call. */
const readLater = new WeakSet<ArrayBufferLike>();

/** Keeps tensors of a call that something else, such as a check, reads after the call's end. */
export function keepTensors(tensors: readonly Tensor[]): void {
  for (const { data } of tensors) if (data.byteLength > 0) readLater.add(data.buffer);
}

/** The buffers that a call leaves behind and that are large enough to free, without those of {@link keepTensors}. */
export class SpentBuffers {
  readonly #buffers = new Set<ArrayBufferLike>();
  readonly #lent: Lent[] = [];

  get isEmpty(): boolean {
    return this.#buffers.size === 0 && this.#lent.length === 0;
  }

  /** Adds views of memory that was made for this call alone. */
  addOwn(...views: readonly Uint8Array[]): void {
    for (const { buffer } of views) this.#add(buffer);
  }

  /** Another call may have a part of a buffer, unless these views are all of it. */
  addWhole(views: readonly Uint8Array[]): void {
    const bytes = new Map<ArrayBufferLike, number>();
    for (const { buffer, byteLength } of views) bytes.set(buffer, (bytes.get(buffer) ?? 0) + byteLength);
    for (const [buffer, sum] of bytes) if (sum === buffer.byteLength) this.#add(buffer);
  }

  /** {@link addWhole}; of those that are lent, the copies that there are in the end. */
  addTensors(tensors: readonly Tensor[]): void {
    const views: Uint8Array[] = [];
    for (const tensor of tensors) {
      const bytes = bytesToSend(tensor);
      if (bytes instanceof Lent) this.#lent.push(bytes);
      else views.push(bytes);
    }
    this.addWhole(views);
  }

  #add(buffer: ArrayBufferLike): void {
    if (buffer.byteLength >= freedBytesMin && !readLater.has(buffer) && !isShared(buffer)) this.#buffers.add(buffer);
  }

  /** Returns how many bytes that were. */
  free(): number {
    let bytes = 0;
    for (const { copy, byteLength } of this.#lent.splice(0)) {
      if (copy === undefined) bytes += byteLength;
      else this.#add(copy.buffer);
    }
    for (const buffer of this.#buffers) {
      bytes += buffer.byteLength;
      free(buffer);
    }
    this.#buffers.clear();
    return bytes;
  }
}
