/**
 * Memory that is freed once nobody reads it any more. V8 frees a buffer when it happens to collect it, and collects more
 * often the more buffers there are: with 602 KB in and out, that was more than half of what a call cost the host.
 */
import { MessageChannel } from 'node:worker_threads';
import type { Tensor } from './tensor.ts';

/** Below this, sending a buffer away costs as much as collecting it. */
export const freedBytesMin = 16 * 1024;

const nowhere = new MessageChannel().port1;
nowhere.close();

/** A buffer that was sent away has no memory any more, and at a closed port what arrives is freed at once. */
export function free(buffer: ArrayBufferLike): void {
  nowhere.postMessage(null, [buffer as ArrayBuffer]);
}

const kept = new WeakSet<ArrayBufferLike>();

/** The tensors of a call are read after its end, by something that runs beside it. */
export function keepTensors(tensors: readonly Tensor[]): void {
  for (const { data } of tensors) if (data.byteLength > 0) kept.add(data.buffer);
}

/** What a call leaves behind that is worth to be freed, but for what {@link keepTensors} was told of. */
export class SpentBuffers {
  readonly #buffers = new Set<ArrayBufferLike>();

  get isEmpty(): boolean {
    return this.#buffers.size === 0;
  }

  /** Of memory that was made for this call alone. */
  addOwn(...views: readonly Uint8Array[]): void {
    for (const { buffer } of views) this.#add(buffer);
  }

  /** Another call may have a part of a buffer, unless these views are all of it. */
  addWhole(views: readonly Uint8Array[]): void {
    const bytes = new Map<ArrayBufferLike, number>();
    for (const { buffer, byteLength } of views) bytes.set(buffer, (bytes.get(buffer) ?? 0) + byteLength);
    for (const [buffer, sum] of bytes) if (sum === buffer.byteLength) this.#add(buffer);
  }

  #add(buffer: ArrayBufferLike): void {
    if (buffer.byteLength >= freedBytesMin && !kept.has(buffer)) this.#buffers.add(buffer);
  }

  free(): void {
    for (const buffer of this.#buffers) free(buffer);
    this.#buffers.clear();
  }
}
