import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ifThere, namesInFolder } from './disk-files.ts';

const monthMs = 30 * 24 * 3600 * 1000;

interface UnusedOptions {
  /** Matches the names of entries; other files of the folder stay. */
  readonly isEntry: RegExp;
  /** The file in each entry whose time says when it was used last. Default: the entry itself. */
  readonly mark?: string;
  /** Default: 30 days. */
  readonly unusedMs?: number;
}

/** Removes the entries of a cache that were not used for this long. A user of an entry sets the time of its mark. */
export async function removeUnused(
  folder: string,
  { isEntry, mark = '.', unusedMs = monthMs }: UnusedOptions,
): Promise<void> {
  const oldestMs = Date.now() - unusedMs;
  for (const name of await namesInFolder(folder)) {
    if (!isEntry.test(name)) continue;
    const path = join(folder, name);
    // One without its mark counts as old.
    const { mtimeMs = 0 } = (await ifThere(stat(join(path, mark)))) ?? {};
    if (mtimeMs < oldestMs) await rm(path, { recursive: true, force: true });
  }
}
