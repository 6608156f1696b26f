/** Reads weights from their files, in chunks, in the background: into pinned memory, or to hash them. */
import { open, type FileHandle } from 'node:fs/promises';
import { getOrMake } from '../../tools/index.ts';
import { GpuError } from '../types.ts';
import { fillFrom } from './files.ts';
import type { ProgramWeight } from './types.ts';

/** Large enough that calls do not dominate, small enough that a cancelled read ends soon. */
const readBytes = 8 * 2 ** 20;

/** Keeps files open while one function's weights are read. */
export class WeightReader implements AsyncDisposable {
  readonly #files = new Map<string, Promise<FileHandle>>();

  /**
   * Fills `into` with the weight's bytes from `at` on.
   *
   * @throws GpuError 'weights-unreadable' with the weight's and the file's name; the signal's reason when it is aborted
   */
  async read(
    { name, source }: Pick<ProgramWeight, 'name' | 'source'>,
    at: number,
    into: Uint8Array,
    signal?: AbortSignal,
  ): Promise<void> {
    const { path, byteOffset } = source;
    try {
      const file = await getOrMake(this.#files, path, () => open(path, 'r'));
      for (let done = 0; done < into.byteLength; done += readBytes) {
        signal?.throwIfAborted();
        await fillFrom(file, into.subarray(done, done + readBytes), byteOffset + at + done);
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw new GpuError(
        'weights-unreadable',
        `weight '${name}' cannot be read from ${path}: ${error instanceof Error ? error.message : String(error)}`,
        { cause: error },
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const file of this.#files.values()) {
      try {
        await (await file).close();
      } catch {
        // It could not be opened, which its reader was told.
      }
    }
  }
}
