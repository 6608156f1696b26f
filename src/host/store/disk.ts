/** Disk operations that survive a kill and a power cut, and streams that are hashed while they are written. */
import { createHash, randomBytes } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { open, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import {
  closedSynced,
  hasCode,
  ifThere,
  synced,
  syncNames,
  unlinkIfThere,
  writeDurably,
  type StreamedBytes,
} from '../../tools/index.ts';
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

/** Replaces a file in one step, for caches: a reader sees the old text or the new one, never half of one. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${randomBytes(8).toString('hex')}.tmp`);
  try {
    await writeDurably(temporary, text);
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
  // Its error on a read-only disk stays EROFS: the lock of the data folder looks for it.
  const handle = await open(path, 'r+');
  await onDisk(() =>
    closedSynced(handle, async () => {
      const { bytesWritten } = await handle.write(text, 0);
      await handle.truncate(bytesWritten);
    }),
  );
}

/** Waits until the content of a file is on the disk. */
export const syncFile = (path: string): Promise<void> => onDisk(() => synced(path, 'r'));

/** Waits until the current names in a folder are on the disk. */
export const syncFolder = (path: string): Promise<void> => onDisk(() => syncNames(path));

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

/** The size of a regular file; undefined if there is none. */
export async function fileBytes(path: string): Promise<number | undefined> {
  const found = await ifThere(stat(path));
  return found?.isFile() === true ? found.size : undefined;
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
