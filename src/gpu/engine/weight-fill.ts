/** Reads weights from their files directly into pinned memory, in chunks, in the background. */
import { open, type FileHandle } from 'node:fs/promises';
import { getOrMake } from '../../tools/index.ts';
import { elementBytes, singlesToBf16, singlesToFp16, type DataType } from '../../tensor/index.ts';
import type { ProgramWeight } from '../program/types.ts';
import { GpuError } from '../types.ts';

/** Large enough that calls do not dominate, small enough that a cancelled fill ends soon. */
const readBytes = 8 * 2 ** 20;
/** Converting blocks the event loop: less than a millisecond at a time. */
const convertElements = 128 * 1024;

/** Keeps files open while one function's weights are read. */
export class WeightReader implements AsyncDisposable {
  readonly #files = new Map<string, Promise<FileHandle>>();
  #buffer: Uint8Array | undefined;

  /**
   * Fills `into` with the weight in its stored form.
   *
   * @throws GpuError 'weights-unreadable' with the weight's and the file's name; the signal's reason when it is aborted
   */
  async read(weight: ProgramWeight, into: Uint8Array, signal: AbortSignal): Promise<void> {
    const { path } = weight.source;
    try {
      const handle = await getOrMake(this.#files, path, () => open(path, 'r'));
      if (weight.storedAs === undefined || weight.storedAs === weight.datatype) {
        await readPlain(handle, weight, into, signal);
      } else {
        this.#buffer ??= new Uint8Array(convertElements * 4);
        await readConverted(handle, weight, weight.storedAs, into, this.#buffer, signal);
      }
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

async function readPlain(
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

async function readConverted(
  file: FileHandle,
  { name, datatype, bytes, source }: ProgramWeight,
  storedAs: DataType,
  into: Uint8Array,
  buffer: Uint8Array,
  signal: AbortSignal,
): Promise<void> {
  const convert = conversion(storedAs, datatype, name);
  const count = bytes / elementBytes[datatype];
  const to = new Uint16Array(into.buffer, into.byteOffset, count);
  for (let at = 0; at < count;) {
    signal.throwIfAborted();
    const elements = Math.min(convertElements, count - at);
    for (let read = 0; read < elements * 4;) {
      read += await readSome(file, buffer, read, elements * 4 - read, source.byteOffset + at * 4 + read, name);
    }
    convert(new Uint32Array(buffer.buffer, buffer.byteOffset, elements), to.subarray(at, at + elements));
    at += elements;
  }
}

function conversion(from: DataType, to: DataType, name: string): typeof singlesToBf16 {
  if (from === 'FP32' && to === 'BF16') return singlesToBf16;
  if (from === 'FP32' && to === 'FP16') return singlesToFp16;
  throw new GpuError('unsupported', `weight '${name}' is ${from} on disk and cannot be kept as ${to}`);
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
