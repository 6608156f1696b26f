/** Files that may not be there, and files that survive a power cut. */
import { open, readdir, readFile, unlink, type FileHandle } from 'node:fs/promises';

export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code));
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
export async function namesInFolder(path: string): Promise<string[]> {
  return ((await ifThere(readdir(path))) ?? []).sort();
}

export async function readTextIfThere(path: string): Promise<string | undefined> {
  return await ifThere(readFile(path, 'utf8'));
}

/** Runs `work` with an open file; resolves when its content is on the disk. */
export async function synced(path: string, flags: string, work?: (handle: FileHandle) => Promise<void>): Promise<void> {
  await closedSynced(await open(path, flags), work);
}

/** The same with a file that is open already, and closed then. */
export async function closedSynced(handle: FileHandle, work?: (handle: FileHandle) => Promise<void>): Promise<void> {
  try {
    await work?.(handle);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes a new file and waits until it is on the disk. */
export const writeDurably = (path: string, text: string): Promise<void> =>
  synced(path, 'wx', async (handle) => await handle.writeFile(text));

/** Waits until the current names in a folder are on the disk. */
export async function syncNames(path: string): Promise<void> {
  await synced(path, 'r').catch((error: unknown) => {
    // Some network file systems have no fsync for folders, and write names immediately.
    if (!hasCode(error, 'EINVAL', 'ENOTSUP', 'EPERM')) throw error;
  });
}
