/**
 * What a host's data folder takes on its disk: published versions, where contents that several have count once, and the
 * caches of what was prepared of them. Files with several names count once too.
 */
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { getOrMake, ifThere, inParallel } from '../../tools/index.ts';
import type { LoadedRecord } from './version-record.ts';

/** The caches are counted again when somebody asks, at most so often. */
const countedMs = 30_000;

export interface DiskFigures {
  readonly parts: {
    /** Of versions, each of one alone. */
    readonly own: number;
    /** Of versions, each of several; counted once. */
    readonly shared: number;
    /** Weights prepared for CPU instances, and programs and weights for GPUs. */
    readonly cpuCache: number;
    readonly gpuCache: number;
  };
  /** By version (`name@version`): its own bytes, and those that it shares. */
  readonly versions: ReadonlyMap<string, { readonly own: number; readonly shared: number }>;
}

export interface DiskUseOptions {
  readonly uploads: ReadonlyMap<string, ReadonlyMap<string, LoadedRecord>>;
  /** The folder of the caches. */
  readonly caches: string;
}

export class DiskUse {
  readonly #options: DiskUseOptions;
  #caches: Promise<Pick<DiskFigures['parts'], 'cpuCache' | 'gpuCache'>> | undefined;
  #countedMs = -Infinity;
  #published: Published | undefined;
  #cacheBytes = { cpuCache: 0, gpuCache: 0 };

  constructor(options: DiskUseOptions) {
    this.#options = options;
  }

  /** Versions have changed. */
  changed(): void {
    this.#published = undefined;
  }

  /** The figures, with caches as they were in the last half minute. */
  async current(): Promise<DiskFigures> {
    await this.#count();
    return this.latest();
  }

  /** The same with the caches as last counted; it has them counted for the next time. */
  latest(): DiskFigures {
    void this.#count().catch(() => undefined);
    this.#published ??= published(this.#options.uploads);
    const { own, shared, versions } = this.#published;
    return { parts: { own, shared, ...this.#cacheBytes }, versions };
  }

  async #count(): Promise<void> {
    const nowMs = performance.now();
    if (this.#caches === undefined || nowMs - this.#countedMs > countedMs) {
      this.#countedMs = nowMs;
      this.#caches = this.#countCaches();
    }
    this.#cacheBytes = await this.#caches;
  }

  async #countCaches(): Promise<Pick<DiskFigures['parts'], 'cpuCache' | 'gpuCache'>> {
    const [cpuCache, gpuCache] = await Promise.all(
      ['weights', 'gpu'].map(async (cache) => await bytesBelow(join(this.#options.caches, cache))),
    );
    return { cpuCache: cpuCache!, gpuCache: gpuCache! };
  }
}

interface Published extends Pick<DiskFigures, 'versions'>, Pick<DiskFigures['parts'], 'own' | 'shared'> {}

function published(uploads: DiskUseOptions['uploads']): Published {
  const users = new Map<string, { readonly bytes: number; readonly keys: Set<string> }>();
  const versions = new Map<string, { own: number; shared: number }>();
  for (const [name, all] of uploads) {
    for (const [version, loaded] of all) {
      if (loaded.status === 'elsewhere' || loaded.status === 'unreadable') continue;
      const key = `${name}@${version}`;
      versions.set(key, { own: 0, shared: 0 });
      for (const { sha256, bytes } of loaded.stored) {
        getOrMake(users, sha256, () => ({ bytes, keys: new Set<string>() })).keys.add(key);
      }
    }
  }
  const sums = { own: 0, shared: 0 };
  for (const { bytes, keys } of users.values()) {
    const kind = keys.size === 1 ? 'own' : 'shared';
    sums[kind] += bytes;
    for (const key of keys) versions.get(key)![kind] += bytes;
  }
  return { ...sums, versions };
}

/** Bytes of all files below a folder, each once; 0 if there is none. */
async function bytesBelow(folder: string): Promise<number> {
  const entries = (await ifThere(readdir(folder, { recursive: true, withFileTypes: true }))) ?? [];
  const files = new Map<number, number>();
  await inParallel(entries, async (entry) => {
    if (!entry.isFile()) return;
    // It may have been removed since.
    const found = await ifThere(stat(join(entry.parentPath, entry.name)));
    if (found !== undefined) files.set(found.ino, found.size);
  });
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}
