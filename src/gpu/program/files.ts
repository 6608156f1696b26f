import { closeSync, openSync } from 'node:fs';
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
