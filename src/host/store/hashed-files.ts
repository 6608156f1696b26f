/** Hashes of files that do not change. */
import { stat } from 'node:fs/promises';
import { LRUCache } from 'lru-cache';
import { getOrStart, hashFile, type StreamedBytes } from '../../tools/index.ts';

/** Each file is read once, also if it has several names, until it changes. */
export class HashedFiles {
  readonly #known = new LRUCache<string, Promise<StreamedBytes>>({ max: 10_000 });

  async hash(path: string): Promise<StreamedBytes> {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true });
    const stamp = [dev, ino, size, mtimeNs, ctimeNs].join(' ');
    return await getOrStart(this.#known, stamp, () => hashFile(path));
  }
}
