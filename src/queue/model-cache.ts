/**
 * Models that a worker has fetched from the store, by the hash of their bytes, on its disk within a limit: the least
 * recently used is evicted.
 *
 *     <folder>/<revision>/<file>   a function's files under the names by which its model knows them
 *     <folder>/<revision>/.whole   all of them have arrived; the text is the manifest
 *
 * A revision is the hash over its files' hashes, so that a folder's content never changes.
 */
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { LRUCache } from 'lru-cache';
import { manifestBytes, parseManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';
import { fetchContent, type ContentSource, type Store } from '../store/index.ts';
import { getOrMake } from '../tools/index.ts';

export interface ModelCacheOptions {
  readonly folder: string;
  readonly bytesMax: number;
  readonly store: Store;
  /** Whether a function has invocations; its files then stay. */
  readonly inUse: (revision: string) => boolean;
  /** Called and awaited before a function's files are removed, so that its instances can end. */
  readonly onEvict: (revision: string) => Promise<void>;
}

const wholeFile = '.whole';
const handlerFile = '.handler.mjs';

export class ModelCache {
  readonly bytesMax: number;
  readonly #options: ModelCacheOptions;
  readonly #source: ContentSource;
  /** Bytes by revision. What is in use stays over the limit, so the limit is kept by {@link ModelCache.#makeRoom}. */
  readonly #held = new LRUCache<string, number>({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: Number });
  readonly #fetching = new Map<string, Promise<void>>();

  constructor(options: ModelCacheOptions) {
    this.#options = { ...options, folder: resolve(options.folder) };
    this.bytesMax = options.bytesMax;
    this.#source = options.store.source(new AbortController().signal);
  }

  get bytes(): number {
    return this.#held.calculatedSize;
  }

  holds(revision: string): boolean {
    return this.#held.has(revision);
  }

  /** Reads what an earlier worker left, and removes incomplete files. */
  async start(): Promise<void> {
    const { folder } = this.#options;
    await mkdir(folder, { recursive: true });
    const found: { revision: string; bytes: number; usedMs: number }[] = [];
    for (const name of await readdir(folder)) {
      const place = join(folder, name);
      const manifest = await readFile(join(place, wholeFile), 'utf8').then(parseManifest, () => undefined);
      if (manifest === undefined || manifest.revision !== name || !(await isWhole(place, manifest))) {
        await rm(place, { recursive: true, force: true });
        continue;
      }
      const { mtimeMs } = await stat(join(place, wholeFile));
      found.push({ revision: name, bytes: manifestBytes(manifest), usedMs: mtimeMs });
    }
    for (const { revision, bytes } of found.toSorted((one, other) => one.usedMs - other.usedMs)) {
      this.#held.set(revision, bytes);
    }
    await this.#makeRoom(0);
  }

  /** Whether the function's files fit without evicting another's. */
  hasRoomFor(manifest: FunctionManifest): boolean {
    return this.bytes + manifestBytes(manifest) <= this.bytesMax;
  }

  /**
   * The function's files on this disk, fetched from the store if they are missing. Callers that come during a
   * fetch share it.
   *
   * @throws Error in a sentence: the store lacks the bytes, they have another hash, or they exceed the limit
   */
  async hold(manifest: FunctionManifest) {
    const { revision } = manifest;
    if (!this.#held.has(revision)) {
      await getOrMake(this.#fetching, revision, () =>
        this.#fetch(manifest).finally(() => this.#fetching.delete(revision)),
      );
    }
    this.#touch(revision);
    const place = join(this.#options.folder, revision);
    return {
      modelPath: join(place, manifest.files[0].name),
      handlerPath: manifest.handler === undefined ? undefined : join(place, handlerFile),
    };
  }

  #touch(revision: string): void {
    if (this.#held.get(revision) === undefined) return;
    const now = new Date();
    // Keeps the order over a restart; a failure here loses only that.
    utimes(join(this.#options.folder, revision, wholeFile), now, now).catch(() => undefined);
  }

  async #fetch(manifest: FunctionManifest): Promise<void> {
    const { revision } = manifest;
    const bytes = manifestBytes(manifest);
    if (bytes > this.bytesMax) {
      throw new Error(`the ${bytes} bytes of ${manifest.key} are over this worker's bound of ${this.bytesMax}`);
    }
    await this.#makeRoom(bytes);
    const staging = join(this.#options.folder, `.${revision}.part`);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging);
    try {
      const handler = manifest.handler === undefined ? [] : [{ ...manifest.handler, name: handlerFile }];
      for (const file of [...manifest.files, ...handler]) await this.#fetchFile(file, staging);
      await writeFile(join(staging, wholeFile), JSON.stringify(manifest));
      await rename(staging, join(this.#options.folder, revision));
    } catch (error) {
      await rm(staging, { recursive: true, force: true });
      throw error;
    }
    this.#held.set(revision, bytes);
  }

  async #fetchFile(file: ManifestFile, place: string): Promise<void> {
    try {
      await fetchContent(this.#source, file, join(place, file.name));
    } catch (error) {
      const { message } = error as Error;
      throw new Error(`the file '${file.name}' with the sha256 ${file.sha256} could not be fetched: ${message}`, {
        cause: error,
      });
    }
  }

  async #makeRoom(bytes: number): Promise<void> {
    const oldestFirst = [...this.#held.rkeys()];
    for (const revision of oldestFirst) {
      if (this.bytes + bytes <= this.bytesMax) return;
      if (!this.#held.has(revision) || this.#options.inUse(revision)) continue;
      this.#held.delete(revision);
      await this.#options.onEvict(revision);
      await rm(join(this.#options.folder, revision), { recursive: true, force: true });
    }
  }
}

async function isWhole(place: string, { files, handler }: FunctionManifest): Promise<boolean> {
  const expected = [...files, ...(handler === undefined ? [] : [{ ...handler, name: handlerFile }])];
  for (const { name, bytes } of expected) {
    const found = await stat(join(place, name)).catch(() => undefined);
    if (found?.size !== bytes) return false;
  }
  return true;
}
