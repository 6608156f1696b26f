import { closeSync, openSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { readAt } from '../../onnx/index.ts';
import { GpuError } from '../types.ts';

/** Reads a range of a file. @throws GpuError 'weights-unreadable' if the file is shorter */
export function readRange(path: string, byteOffset: number, bytes: number): Buffer {
  const file = openSync(path, 'r');
  try {
    const data = readAt(file, byteOffset, bytes);
    if (data.byteLength === bytes) return Buffer.from(data.buffer);
    throw new GpuError('weights-unreadable', `'${path}' ends before byte ${byteOffset + bytes}`);
  } finally {
    closeSync(file);
  }
}

/** Fills a buffer from a file. @throws Error if the file ends before */
export async function fillFrom(file: FileHandle, into: Uint8Array, place: number): Promise<void> {
  for (let read = 0; read < into.byteLength;) {
    const { bytesRead } = await file.read(into, read, into.byteLength - read, place + read);
    if (bytesRead === 0) throw new Error(`the file ends before byte ${place + read + 1}`);
    read += bytesRead;
  }
}
