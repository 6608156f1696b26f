/**
 * The files of published versions on this host's disk. A version that somebody else published appears here by its
 * record, and gets its files when this host needs them.
 */
import type { FetchFile } from '../../store/index.ts';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { unlinkIfThere } from '../../tools/index.ts';
import { discardTree } from './disk.ts';
import type { Publishing } from './publishing.ts';
import type { Removals } from './removals.ts';
import { sameFiles } from './uploaded-files.ts';
import type { StoredFile, VersionRecord } from './version-record.ts';

export interface VersionFilesOptions {
  readonly catalogue: Pick<Catalogue, 'uploadsOf' | 'entries'>;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly removals: Pick<Removals, 'discard' | 'releaseBlobs'>;
  readonly publishing: Pick<Publishing, 'install'>;
}

export class VersionFiles {
  readonly #options: VersionFilesOptions;

  constructor(options: VersionFilesOptions) {
    this.#options = options;
  }

  /** Makes the versions here those of the function's entry. Called under the function's lock. */
  async adopt(name: string): Promise<void> {
    const { catalogue, data, removals } = this.#options;
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
      await removals.discard(data.versionFolder(name, version));
      await removals.releaseBlobs(loaded);
    }
    for (const [version, record] of records) uploads.set(version, { status: 'elsewhere', record });
  }

  /**
   * Installs the content of a version; its files are among the blobs. Called under the function's lock. Resolves to
   * false if the version has changed, or has its content already.
   */
  async settle(record: VersionRecord): Promise<boolean> {
    const { catalogue } = this.#options;
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
    const { data, blobs, publishing } = this.#options;
    const folder = data.stagingPath();
    try {
      const stored = await blobs.takeOutAll(record, folder);
      await publishing.install(folder, record);
      return stored;
    } catch (error) {
      await discardTree(folder);
      throw error;
    }
  }

  /**
   * Drops the content of a version. Called under the function's lock. @param onElsewhere called before its files are
   * removed
   */
  async drop({ name, version, files }: VersionRecord, onElsewhere: () => void): Promise<void> {
    const { catalogue, data, blobs, removals } = this.#options;
    const uploads = catalogue.uploadsOf(name);
    const loaded = uploads.get(version);
    if (loaded?.status !== 'whole' || !sameFiles(loaded.record.files, files)) return;
    uploads.set(version, { status: 'elsewhere', record: loaded.record });
    onElsewhere();
    await removals.discard(data.versionFolder(name, version));
    for (const { sha256 } of loaded.stored) await blobs.release(sha256, true);
  }

  /** Stores a file as a blob, kept for a day from now although no version refers to it. */
  async keep(file: StoredFile, fetch: FetchFile): Promise<void> {
    const { blobs, data } = this.#options;
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
}
