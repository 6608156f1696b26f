/** Reads weights from their files directly into pinned memory, in chunks, in the background. */
import { open, type FileHandle } from 'node:fs/promises';
import { getOrMake } from '../../tools/index.ts';
import type { ProgramWeight } from '../program/types.ts';
import { GpuError } from '../types.ts';

/** Large enough that calls do not dominate, small enough that a cancelled fill ends soon. */
const readBytes = 8 * 2 ** 20;

/** Keeps files open while one function's weights are read. */
export class WeightReader implements AsyncDisposable {
  readonly #files = new Map<string, Promise<FileHandle>>();

  /**
   * Fills `into` with the weight's bytes.
   *
   * @throws GpuError 'weights-unreadable' with the weight's and the file's name; the signal's reason when it is aborted
   */
  async read(weight: ProgramWeight, into: Uint8Array, signal: AbortSignal): Promise<void> {
    const { path } = weight.source;
    try {
      const handle = await getOrMake(this.#files, path, () => open(path, 'r'));
      await readWhole(handle, weight, into, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof GpuError) throw error;
      throw new GpuError(
        'weights-unreadable',
        `weight '${weight.name}' cannot be read from ${path}: ${error instanceof Error ? error.message : String(error)}`,
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

async function readWhole(
  file: FileHandle,
  { name, bytes, source }: ProgramWeight,
  into: Uint8Array,
  signal: AbortSignal,
): Promise<void> {
  for (let at = 0; at < bytes;) {
    signal.throwIfAborted();
    at += await readSome(file, into, at, Math.min(readBytes, bytes - at), source.byteOffset + at, name);
  }
}

async function readSome(
  file: FileHandle,
  into: Uint8Array,
  offset: number,
  length: number,
  position: number,
  name: string,
): Promise<number> {
  const { bytesRead } = await file.read(into, offset, length, position);
  if (bytesRead === 0) throw new Error(`the file ends ${length} bytes before weight '${name}' does`);
  return bytesRead;
}
