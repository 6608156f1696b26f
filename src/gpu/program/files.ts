/** Files of the cache: complete or absent, never half written. */
import { randomBytes } from 'node:crypto';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

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
