import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * A file for data that does not fit into memory. Its name is removed as soon as it is open, so that the system frees
 * its space however the process ends.
 */
export class SpillFile {
  readonly #descriptor: number;
  #bytes = 0;

  constructor() {
    const folder = mkdtempSync(join(tmpdir(), 'turntable-trace-'));
    try {
      this.#descriptor = openSync(join(folder, 'spill'), 'w+');
    } finally {
      rmSync(folder, { recursive: true });
    }
    spillFiles.register(this, this.#descriptor, this);
  }

  /** Appends the bytes. Returns the offset at which they start. */
  append(bytes: Uint8Array): number {
    const offset = this.#bytes;
    for (let done = 0; done < bytes.byteLength; ) {
      done += writeSync(this.#descriptor, bytes, done, bytes.byteLength - done, offset + done);
    }
    this.#bytes += bytes.byteLength;
    return offset;
  }

  /** Fills `into` with the bytes from `offset` on. @throws RangeError if the file ends before */
  read(offset: number, into: Uint8Array): void {
    for (let done = 0; done < into.byteLength; ) {
      const count = readSync(this.#descriptor, into, done, into.byteLength - done, offset + done);
      if (count === 0) throw new RangeError(`a spill file of ${this.#bytes} bytes has nothing at ${offset + done}`);
      done += count;
    }
  }
}

/** A trace may be garbage collected without notice; this closes its descriptor. */
const spillFiles = new FinalizationRegistry<number>((descriptor) => closeSync(descriptor));
