/**
 * The files of published versions on this host's disk. A version that somebody else published appears here by its
 * record, and gets its files when this host needs them. Of a version that leaves, bytes stay that another one shares.
 */
import { mkdir, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { FetchFile } from '../../store/index.ts';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { hasCode, ifThere, unlinkIfThere } from '../../tools/index.ts';
import { discardTree } from './disk.ts';
import type { RowChecks } from './row-checks.ts';
import { sameFiles } from './uploaded-files.ts';
import type { Validations } from './validation.ts';
import type { LoadedRecord, StoredFile, VersionRecord } from './version-record.ts';

/** The parts of the store that its work on versions shares. */
export interface StoreParts {
  readonly catalogue: Catalogue;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly validations: Validations;
  readonly rows: RowChecks;
}

export class VersionFiles {
  readonly #parts: StoreParts;

  constructor(parts: StoreParts) {
    this.#parts = parts;
  }

  /** Makes the versions here those of the function's entry. Called under the function's lock. */
  async adopt(name: string): Promise<void> {
    const { catalogue, data } = this.#parts;
    const uploads = catalogue.uploadsOf(name);
    const { versions, unreadable = [] } = catalogue.entries.get(name);
    const records = new Map(versions.map((record) => [record.version, record]));
    for (const [version, loaded] of uploads) {
      const record = records.get(version);
      if (loaded.status === 'unreadable' && record === undefined && unreadable.includes(version)) continue;
      const isSame =
        record !== undefined && loaded.status !== 'unreadable' && sameFiles(loaded.record.files, record.files);
      if (isSame) {
        records.delete(version);
        continue;
      }
      uploads.delete(version);
      if (loaded.status === 'elsewhere') continue;
      await this.discard(data.versionFolder(name, version));
      await this.release(loaded);
    }
    for (const [version, record] of records) uploads.set(version, { status: 'elsewhere', record });
  }

  /**
   * Installs the content of a version; its files are among the blobs. Called under the function's lock. Resolves to
   * false if the version has changed, or has its content already.
   */
  async settle(record: VersionRecord): Promise<boolean> {
    const { catalogue } = this.#parts;
    const { name, version, files } = record;
    const uploads = catalogue.uploadsOf(name);
    const loaded = uploads.get(version);
    if (loaded?.status !== 'elsewhere' || !sameFiles(loaded.record.files, files)) return false;
    const stored = await this.install(loaded.record);
    uploads.set(version, { status: 'whole', record: loaded.record, stored });
    return true;
  }

  /** Makes the files of a version from the blobs. @throws HostError 'unknown-blob' */
  async install(record: VersionRecord): Promise<readonly StoredFile[]> {
    const { data, blobs } = this.#parts;
    const folder = data.stagingPath();
    try {
      const stored = await blobs.takeOutAll(record, folder);
      await this.place(folder, record);
      return stored;
    } catch (error) {
      await discardTree(folder);
      throw error;
    }
  }

  /** Puts a folder of a version's files where it is opened; should they be lost, the next start makes it from the blobs. */
  async place(folder: string, { name, version }: VersionRecord): Promise<void> {
    const target = this.#parts.data.versionFolder(name, version);
    try {
      await rename(folder, target);
    } catch (error) {
      // The function's first version, or one whose files are damaged.
      if (hasCode(error, 'ENOENT')) await mkdir(dirname(target), { recursive: true });
      else if (hasCode(error, 'ENOTEMPTY', 'EEXIST')) await this.discard(target);
      else throw error;
      await rename(folder, target);
    }
  }

  /**
   * Drops the content of a version. Called under the function's lock. @param onElsewhere called before its files are
   * removed
   */
  async drop({ name, version, files }: VersionRecord, onElsewhere: () => void): Promise<void> {
    const { catalogue, data, blobs } = this.#parts;
    const uploads = catalogue.uploadsOf(name);
    const loaded = uploads.get(version);
    if (loaded?.status !== 'whole' || !sameFiles(loaded.record.files, files)) return;
    uploads.set(version, { status: 'elsewhere', record: loaded.record });
    onElsewhere();
    await this.discard(data.versionFolder(name, version));
    for (const { sha256 } of loaded.stored) await blobs.release(sha256, true);
  }

  /** Stores a file as a blob, kept for a day from now although no version refers to it. */
  async keep(file: StoredFile, fetch: FetchFile): Promise<void> {
    const { blobs, data } = this.#parts;
    const path = blobs.pathOf(file.sha256);
    if (path !== undefined && (await blobs.isSound(path, file.sha256))) return await blobs.note(file.sha256);
    const fresh = data.stagingPath();
    try {
      await fetch(file, fresh);
      await blobs.take(file.sha256, fresh);
    } finally {
      await unlinkIfThere(fresh);
    }
  }
  /** Releases the blobs of a version that is gone, and what was found out about a model that no function has any more. */
  async release(loaded: LoadedRecord): Promise<void> {
    if (loaded.status === 'unreadable') return;
    const { catalogue, blobs, validations, rows } = this.#parts;
    const stored = loaded.status === 'elsewhere' ? loaded.record.files : loaded.stored;
    for (const { sha256 } of stored) await blobs.release(sha256);
    const isInUse = (sha256: string): boolean =>
      catalogue.names().some((name) => catalogue.versions(name).some(({ modelSha256 }) => modelSha256 === sha256));
    for (const { sha256 } of loaded.record.files) {
      if (isInUse(sha256)) continue;
      await validations.forget(sha256);
      await rows.forget(sha256);
    }
  }

  /** Deletes the files of a version, or a function, that no entry names; after a kill the next start does. */
  async discard(folder: string): Promise<void> {
    const trash = this.#parts.data.stagingPath();
    // Deleted by hand: there is nothing to do.
    await ifThere(rename(folder, trash));
    await discardTree(trash);
  }
}
