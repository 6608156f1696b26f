/** Files that are complete or absent, never half written, and the hash that tells. */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { access, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

export interface StreamedBytes {
  /** Lower-case hex. */
  readonly sha256: string;
  readonly bytes: number;
}

/** The sha256 and size of a file, read in pieces. */
export async function hashFile(path: string): Promise<StreamedBytes> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 }) as AsyncIterable<Buffer>) {
    hash.update(chunk);
    bytes += chunk.byteLength;
  }
  return { sha256: hash.digest('hex'), bytes };
}

export const temporaryPath = (folder: string, name: string): string =>
  join(folder, `.${process.pid}-${randomBytes(6).toString('hex')}-${name}`);

/** A path in the folder for a file that is removed when the block ends, if there is one. */
export function temporaryFile(folder: string, name: string): AsyncDisposable & { readonly path: string } {
  const path = temporaryPath(folder, name);
  return { path, [Symbol.asyncDispose]: () => rm(path, { force: true }) };
}

/** Lets `write` make a file beside the path, then renames it: a reader sees the old file or the new one. */
export async function replaceFile(path: string, write: (temporary: string) => Promise<unknown>): Promise<void> {
  const folder = dirname(path);
  await mkdir(folder, { recursive: true });
  const temporary = temporaryPath(folder, 'part');
  try {
    await write(temporary);
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

export const writeWhole = (path: string, content: Uint8Array | string): Promise<void> =>
  replaceFile(path, (temporary) => writeFile(temporary, content));

export const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
