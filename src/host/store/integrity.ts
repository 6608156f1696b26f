/**
 * Checks that the stored bytes are still the published ones. Disks and their owners change bytes silently, so every
 * published file is hashed once after each start, in the background, before its version serves.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fetchContent, type Store } from '../../store/index.ts';
import type { Log } from '../../tools/index.ts';
import type { BlobStore } from './blobs.ts';
import type { DataFolder } from './data-folder.ts';
import { loadVersion, type LoadedRecord, type VersionRecord } from './version-record.ts';

export interface IntegrityOptions {
  readonly blobs: BlobStore;
  readonly data: DataFolder;
  /** By function and version; entries of verified or healed versions are replaced. */
  readonly uploads: ReadonlyMap<string, Map<string, LoadedRecord>>;
  readonly logger: Log;
  /** A store on another machine, which has the right bytes. */
  readonly store: Store | undefined;
  /** A version of this function can serve now, or no longer. */
  readonly onChanged: (name: string) => void;
}

export class Integrity {
  readonly #options: IntegrityOptions;
  /** Versions to hash, by `name@version`. */
  #waiting = new Map<string, VersionRecord>();
  /** Those of them that a caller waits for: they come first. */
  readonly #wanted = new Set<string>();
  readonly #stopped = new AbortController();

  constructor(options: IntegrityOptions) {
    this.#options = options;
  }

  /** Before {@link run}. */
  add(record: VersionRecord): void {
    this.#waiting.set(`${record.name}@${record.version}`, record);
  }

  /** Moves a version to the front; does nothing if it is not waiting. */
  hurry(key: string): void {
    if (this.#waiting.has(key)) this.#wanted.add(key);
  }

  /**
   * Hashes every version that was added, the smallest first, and fetches damaged files from the store. Resolves when
   * nothing is left to try.
   */
  async run(): Promise<void> {
    this.#waiting = new Map([...this.#waiting].sort(([, a], [, b]) => bytesOf(a) - bytesOf(b)));
    const bySize = this.#waiting.keys(); // A key that is deleted before its turn is skipped.
    const damaged: VersionRecord[] = [];
    for (let next = this.#next(bySize); next !== undefined; next = this.#next(bySize)) {
      const { name, version } = next;
      const loaded = this.#options.uploads.get(name)?.get(version);
      if (loaded?.status === 'damaged') damaged.push(loaded.record);
      if (loaded?.status !== 'unverified') continue;
      const verified = await this.#verified(loaded.record);
      // It may have been removed or healed meanwhile.
      if (this.#options.uploads.get(name)?.get(version) === loaded) this.#set(loaded.record, verified);
      if (verified.status === 'damaged') damaged.push(loaded.record);
    }
    // A store that hangs must not delay intact versions.
    for (const record of damaged) await this.#fetchDamaged(record);
  }

  /** `run` resolves after its current version. */
  stop(): void {
    this.#waiting.clear();
    this.#wanted.clear();
    this.#stopped.abort();
  }

  /**
   * Replaces damaged files with this hash, whichever version they belong to, by bytes that a client has just uploaded.
   * Returns the versions (`name@version`) that were healed.
   *
   * @param fresh path of the right bytes, on the store's disk
   */
  async heal(sha256: string, fresh: string): Promise<string[]> {
    const { blobs, data, uploads, logger } = this.#options;
    const healed: string[] = [];
    const wasBlobDamaged = await blobs.heal(sha256, fresh);
    for (const [name, versions] of uploads) {
      for (const [version, loaded] of versions) {
        if (loaded.status === 'unreadable' || loaded.status === 'elsewhere') continue;
        // It shares the blob's bytes, or was verified by itself: there may be thousands.
        if (loaded.status === 'whole' && !wasBlobDamaged) continue;
        const files = loaded.stored.filter((each) => each.sha256 === sha256);
        if (files.length === 0) continue;
        let wasDamaged = false;
        for (const file of files) {
          if (!(await blobs.heal(sha256, fresh, join(data.versionFolder(name, version), file.name)))) continue;
          logger.warn({ function: `${name}@${version}`, file: file.name }, 'a damaged file was replaced');
          wasDamaged = true;
        }
        if (!wasDamaged && loaded.status !== 'damaged') continue;
        healed.push(`${name}@${version}`);
        this.#set(loaded.record, await this.#verified(loaded.record));
      }
    }
    return healed;
  }

  /** Fetches the files of a damaged version from the store; a version healed meanwhile needs nothing. */
  async #fetchDamaged({ name, version }: VersionRecord): Promise<void> {
    const { blobs, data, uploads, logger, store } = this.#options;
    if (store === undefined) return;
    const tried = new Set<string>();
    for (;;) {
      const loaded = uploads.get(name)?.get(version);
      if (loaded?.status !== 'damaged' || this.#stopped.signal.aborted) return;
      // The manifest is the first: once it is there, it lists the others.
      const file = loaded.stored.find((each) => !tried.has(each.name));
      if (file === undefined) return;
      tried.add(file.name);
      const fresh = data.stagingPath();
      try {
        if (await blobs.isSound(join(data.versionFolder(name, version), file.name), file.sha256)) continue;
        await fetchContent(store.source(this.#stopped.signal), file, fresh);
        const { place } = store;
        logger.warn({ function: `${name}@${version}`, file: file.name, place }, 'a damaged file was fetched again');
        await this.heal(file.sha256, fresh);
      } catch (error) {
        const { message } = error as Error;
        logger.warn(
          { function: `${name}@${version}`, file: file.name, reason: message },
          'a damaged file could not be fetched again',
        );
      } finally {
        await rm(fresh, { force: true });
      }
    }
  }

  /** The next version to hash: one that a caller waits for, else the smallest. */
  #next(bySize: Iterator<string, undefined>): VersionRecord | undefined {
    const [wanted] = this.#wanted;
    const key = wanted ?? bySize.next().value;
    if (key === undefined) return undefined;
    const next = this.#waiting.get(key);
    this.#waiting.delete(key);
    this.#wanted.delete(key);
    return next;
  }

  #set({ name, version }: VersionRecord, loaded: LoadedRecord): void {
    this.#options.uploads.get(name)?.set(version, loaded);
    this.#options.onChanged(name);
  }

  async #verified(record: VersionRecord): Promise<LoadedRecord> {
    const folder = this.#options.data.versionFolder(record.name, record.version);
    const loaded = await loadVersion(folder, record);
    if (loaded.status !== 'unverified') return loaded;
    const { stored } = loaded;
    for (const { name, sha256 } of stored) {
      let reason: string;
      try {
        if (await this.#options.blobs.isSound(join(folder, name), sha256)) continue;
        reason = `its stored file '${name}' is damaged: its bytes do not have the sha256 ${sha256}; publish it again`;
      } catch (error) {
        reason = `its stored file '${name}' cannot be read: ${(error as NodeJS.ErrnoException).code ?? String(error)}`;
      }
      return { status: 'damaged', record, stored, reason };
    }
    return { status: 'whole', record, stored };
  }
}

const bytesOf = ({ files }: VersionRecord): number => files.reduce((total, { bytes }) => total + bytes, 0);
