import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';

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
  for (const name of await entriesOf(folder)) {
    const path = join(folder, name);
    if (isEntry.test(name) && (await changedMs(join(path, mark))) < oldestMs)
      await rm(path, { recursive: true, force: true });
  }
}

async function entriesOf(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch {
    return [];
  }
}

/** When a file was last changed; long ago if it does not exist. */
async function changedMs(path: string): Promise<number> {
  try {
    return (await stat(path)).mtimeMs;
  } catch {
    return 0;
  }
}
