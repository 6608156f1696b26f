/** Files of the cache: complete or absent, never half written. */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { GpuError } from '../types.ts';

export const temporaryPath = (folder: string, name: string): string =>
  join(folder, `.${process.pid}-${randomBytes(6).toString('hex')}-${name}`);

/** Writes beside the path and renames: whoever reads sees the old file or the new one. */
export async function writeAtomically(path: string, bytes: Uint8Array | string): Promise<void> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true });
  const temporary = temporaryPath(folder, 'part');
  try {
    await writeFile(temporary, bytes);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** Bytes of a file. @throws GpuError 'weights-unreadable' where it ends before them */
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
