import { closeSync, openSync, readSync } from 'node:fs';
import { GpuError } from '../types.ts';

/** A range of a file's bytes. @throws GpuError 'weights-unreadable' if the file is shorter */
export function readRange(path: string, byteOffset: number, bytes: number): Buffer {
  const data = Buffer.alloc(bytes);
  const file = openSync(path, 'r');
  try {
    let done = 0;
    while (done < bytes) {
      const count = readSync(file, data, done, bytes - done, byteOffset + done);
      if (count === 0) throw new GpuError('weights-unreadable', `'${path}' ends before byte ${byteOffset + bytes}`);
      done += count;
    }
  } finally {
    closeSync(file);
  }
  return data;
}
