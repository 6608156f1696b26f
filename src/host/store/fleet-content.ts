/**
 * Brings the fleet's registry into this host's store. Versions that other hosts published appear here by their records,
 * and get their content when this host needs it.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { discardTree, unlinkIfThere } from './disk.ts';
import type { Publishing } from './publishing.ts';
import type { Removals } from './removals.ts';
import type { FetchFile, FleetFunction } from './fleet-store.ts';
import { sameFiles } from './uploaded-files.ts';
import { reviveMetadata } from './validation.ts';
import type { FunctionEntry, StoredFile, VersionRecord } from './version-record.ts';

export interface FleetContentOptions {
  readonly catalogue: Pick<Catalogue, 'uploadsOf' | 'entries'>;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly removals: Pick<Removals, 'discard' | 'releaseBlobs'>;
  readonly publishing: Pick<Publishing, 'install'>;
}

export class FleetContent {
  readonly #options: FleetContentOptions;

  constructor(options: FleetContentOptions) {
    this.#options = options;
  }

  /** Makes the store's versions of a function those of the registry. Called under the function's lock. */
  async adopt(name: string, wanted: FleetFunction | undefined): Promise<void> {
    const { catalogue, data, removals } = this.#options;
    const uploads = catalogue.uploadsOf(name);
    await this.#adoptEntry(name, wanted);
    const records = new Map(wanted?.versions.map((record) => [record.version, record]));
    for (const [version, loaded] of uploads) {
      const record = records.get(version);
      const isSame =
        record !== undefined && loaded.status !== 'unreadable' && sameFiles(loaded.record.files, record.files);
      if (isSame && loaded.status !== 'elsewhere') records.delete(version);
      if (isSame) continue;
      if (loaded.status === 'elsewhere') uploads.delete(version);
      else {
        uploads.delete(version);
        await removals.discard(data.versionFolder(name, version));
        await removals.releaseBlobs(loaded);
      }
    }
    for (const [version, record] of records) {
      uploads.set(version, { status: 'elsewhere', record: { ...record, metadata: reviveMetadata(record.metadata) } });
    }
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
    await this.install(loaded.record);
    uploads.set(version, { status: 'whole', record: loaded.record });
    return true;
  }

  /** Makes the files of a version from the blobs. @throws HostError 'unknown-blob' */
  async install(record: VersionRecord): Promise<void> {
    const { data, blobs, publishing } = this.#options;
    const folder = data.stagingPath();
    await mkdir(folder);
    try {
      for (const file of record.files) await blobs.takeOut(file.sha256, join(folder, file.name));
      await publishing.install(folder, record);
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
    for (const { sha256 } of files) await blobs.release(sha256, true);
  }

  /** Stores a file as a blob, kept for a day although no version refers to it. */
  async keep(file: StoredFile, fetch: FetchFile): Promise<void> {
    const { blobs, data } = this.#options;
    const path = blobs.pathOf(file.sha256);
    if (path !== undefined && (await blobs.isSound(path, file.sha256))) return;
    const fresh = data.stagingPath();
    try {
      await fetch(file, fresh);
      await blobs.take(file.sha256, fresh);
    } finally {
      await unlinkIfThere(fresh);
    }
  }

  async #adoptEntry(name: string, wanted: FleetFunction | undefined): Promise<void> {
    const { entries } = this.#options.catalogue;
    const { versions = [], serving = { settings: {} } } = wanted ?? {};
    const now = entries.get(name);
    const next: FunctionEntry = { ...now, versions, ...serving, unreadable: undefined };
    if (JSON.stringify(asJson(now)) !== JSON.stringify(asJson(next))) await entries.write(name, next);
  }
}

const asJson = ({ versions, settings, traffic }: FunctionEntry): unknown => [versions, settings, traffic ?? null];
