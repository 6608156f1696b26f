/** Disk operations that survive a kill and a power cut, and streams that are hashed while they are written. */
import { createHash, randomBytes } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { open, readdir, readFile, rename, rm, stat, unlink, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { StreamedBytes } from '../../tools/index.ts';
import { HostError } from '../errors.ts';

/** No hard links here (or no more of them): the store uses copies instead. */
export const noLinkCodes = ['EPERM', 'ENOTSUP', 'ENOSYS', 'EXDEV', 'EMLINK'];
/** Tells a file from one that has been changed, without reading it. */
export const stampOf = ({ ino, size, mtimeNs }: BigIntStats): string => `${ino} ${size} ${mtimeNs}`;

/** Chunks are gathered up to this before they are written: fewer trips to the thread pool, little memory. */
const writeBytesMin = 512 * 1024;

/**
 * Writes a stream to an open file and hashes it. While one batch of `writeBytesMin` is being written, the next one is
 * gathered and hashed, but no more than one, so that a fast sender is held back. Throws HostError 'body-too-large' as
 * soon as the stream passes `bytesMax`, 'disk-full', and whatever the stream throws; by then no write is under way.
 */
export async function pour(
  handle: FileHandle,
  stream: AsyncIterable<Uint8Array>,
  bytesMax: number,
  tooLarge = `the upload is over the limit of ${bytesMax} bytes`,
): Promise<StreamedBytes> {
  const hash = createHash('sha256');
  let bytes = 0;
  let gathered: Uint8Array[] = [];
  let gatheredBytes = 0;
  let writing = Promise.resolve();
  try {
    for await (const chunk of stream) {
      bytes += chunk.byteLength;
      if (bytes > bytesMax) throw new HostError('body-too-large', tooLarge);
      hash.update(chunk);
      gathered.push(chunk);
      gatheredBytes += chunk.byteLength;
      if (gatheredBytes < writeBytesMin) continue;
      await writing;
      writing = writeAll(handle, gathered);
      writing.catch(() => undefined); // Awaited at the next batch; until then its rejection has no handler.
      gathered = [];
      gatheredBytes = 0;
    }
  } finally {
    await writing;
  }
  await writeAll(handle, gathered);
  return { sha256: hash.digest('hex'), bytes };
}

async function writeAll(handle: FileHandle, chunks: readonly Uint8Array[]): Promise<void> {
  let left = chunks.filter(({ byteLength }) => byteLength > 0);
  try {
    while (left.length > 0) {
      let { bytesWritten } = await handle.writev(left);
      // A write may stop short, even in the middle of a chunk.
      const rest: Uint8Array[] = [];
      for (const chunk of left) {
        if (bytesWritten < chunk.byteLength) rest.push(chunk.subarray(bytesWritten));
        bytesWritten = Math.max(0, bytesWritten - chunk.byteLength);
      }
      left = rest;
    }
  } catch (error) {
    throw diskError(error);
  }
}

/** Streams into a new file at `path`, which need not be on the disk yet. Leaves none when it throws (see {@link pour}). */
export async function receiveFile(
  path: string,
  stream: AsyncIterable<Uint8Array>,
  bytesMax: number,
  tooLarge?: string,
): Promise<StreamedBytes> {
  const handle = await open(path, 'wx').catch((error: unknown) => {
    throw diskError(error);
  });
  try {
    const streamed = await pour(handle, stream, bytesMax, tooLarge);
    await handle.close();
    return streamed;
  } catch (error) {
    await handle.close().catch(() => undefined);
    await unlinkIfThere(path);
    throw diskError(error);
  }
}

/** Runs `work` with an open file; resolves when the result is on the disk. */
async function synced(path: string, flags: string, work?: (handle: FileHandle) => Promise<void>): Promise<void> {
  const handle = await open(path, flags);
  try {
    await work?.(handle);
    await handle.sync();
  } catch (error) {
    throw diskError(error);
  } finally {
    await handle.close();
  }
}

/** Writes a new file and waits until it is on the disk. */
export async function writeFileDurably(path: string, text: string): Promise<void> {
  await synced(path, 'wx', async (handle) => await handle.writeFile(text));
}

/** Replaces a file in one step, for caches: a reader sees the old text or the new one, never half of one. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${randomBytes(8).toString('hex')}.tmp`);
  try {
    await writeFileDurably(temporary, text);
    await rename(temporary, path);
  } catch (error) {
    await unlinkIfThere(temporary);
    throw diskError(error);
  }
}

/**
 * Overwrites a short existing file in place, which works on a full disk too. A kill in the middle leaves a mixture of
 * both texts.
 */
export async function overwriteFile(path: string, text: string): Promise<void> {
  await synced(path, 'r+', async (handle) => {
    const { bytesWritten } = await handle.write(text, 0);
    await handle.truncate(bytesWritten);
  });
}

/** Waits until the current names in a folder are on the disk. */
export async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } catch (error) {
    // Some network file systems have no fsync for folders, and write names immediately.
    if (!hasCode(error, 'EINVAL', 'ENOTSUP', 'EPERM')) throw diskError(error);
  } finally {
    await handle.close();
  }
}

/** Waits until the content of a file is on the disk. */
export const syncFile = async (path: string): Promise<void> => await synced(path, 'r');

export async function removeTree(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 2 });
}

/** Removes an unused tree from staging as far as the disk allows; the next start removes the rest. */
export async function discardTree(path: string): Promise<void> {
  await removeTree(path).catch(() => undefined);
}

/** Work that removes unused files. On a read-only disk they stay until a start that may write. */
export async function tidy(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!hasCode(error, 'EROFS')) throw error;
  }
}

/** The result of work on a file or folder; undefined if it does not exist. */
export async function ifThere<Found>(work: Promise<Found>): Promise<Found | undefined> {
  try {
    return await work;
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}

export async function unlinkIfThere(path: string): Promise<void> {
  await ifThere(unlink(path));
}

/** Names in a folder, sorted; none if the folder does not exist. */
export async function namesIn(path: string): Promise<string[]> {
  return ((await ifThere(readdir(path))) ?? []).sort();
}

export async function readTextIfThere(path: string): Promise<string | undefined> {
  return await ifThere(readFile(path, 'utf8'));
}

/** The size of a regular file; undefined if there is none. */
export async function fileBytes(path: string): Promise<number | undefined> {
  const found = await ifThere(stat(path));
  return found?.isFile() === true ? found.size : undefined;
}

export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
}

/** Converts a full disk or quota to HostError 'disk-full', a read-only disk to 'store-read-only'; other errors stay. */
export function diskError(error: unknown): unknown {
  if (hasCode(error, 'ENOSPC', 'EDQUOT')) {
    return new HostError('disk-full', 'the disk of the model store is full', { cause: error });
  }
  if (hasCode(error, 'EROFS', 'EACCES', 'EPERM')) {
    const why = 'the data folder of this host cannot be written: nothing was published or removed';
    return new HostError('store-read-only', why, { cause: error });
  }
  return error;
}

/** Work on the data folder. @throws as {@link diskError} converts */
export async function onDisk<Result>(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw diskError(error);
  }
}
