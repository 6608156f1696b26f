/** Removes versions: the entry loses them, then their bytes are deleted unless another version shares them. */
import { rename } from 'node:fs/promises';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { Changes } from './changes.ts';
import type { DataFolder } from './data-folder.ts';
import { ifThere } from '../../tools/index.ts';
import { discardTree, onDisk } from './disk.ts';
import { withoutVersions } from './entries.ts';
import { unknownFunction, unknownVersion } from './names.ts';
import type { RowChecks } from './row-checks.ts';
import type { Validations } from './validation.ts';
import type { LoadedRecord } from './version-record.ts';

export interface RemovalsOptions {
  readonly changes: Changes;
  readonly catalogue: Catalogue;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly validations: Validations;
  readonly rows: RowChecks;
}

export class Removals {
  readonly #options: RemovalsOptions;
  readonly #catalogue: Catalogue;

  constructor(options: RemovalsOptions) {
    this.#options = options;
    this.#catalogue = options.catalogue;
  }

  /** Removes a version, or the function, that {@link check} has let pass. */
  async remove(name: string, version: string | undefined): Promise<void> {
    const { data, changes } = this.#options;
    const uploads = this.#catalogue.uploadsOf(name);
    const isAll = version === undefined || uploads.size === 1;
    const removed = new Map([...uploads].filter(([each]) => isAll || each === version));
    await changes.commit(name, withoutVersions(this.#catalogue.entries.get(name), new Set(removed.keys())));
    for (const each of removed.keys()) uploads.delete(each);
    if (isAll) this.#catalogue.uploads.delete(name);
    this.#catalogue.refresh(name);
    await onDisk(async () => {
      await this.discard(isAll ? data.functionFolder(name) : data.versionFolder(name, version));
      for (const loaded of removed.values()) await this.releaseBlobs(loaded);
    });
  }

  /** @throws HostError 'unknown-function', 'unknown-version' or 'folder-function' */
  check(name: string, version: string | undefined): void {
    const versions = this.#catalogue.versions(name);
    if (versions.length === 0) throw unknownFunction(name);
    if (version === undefined) {
      const shipped = versions.find(({ source }) => source === 'folder');
      if (shipped !== undefined) this.#catalogue.mustNotBeShipped(name, shipped.version);
      return;
    }
    if (this.#catalogue.find(name, version) === undefined) throw unknownVersion(name, version);
    this.#catalogue.mustNotBeShipped(name, version);
  }

  async releaseBlobs(loaded: LoadedRecord): Promise<void> {
    if (loaded.status === 'unreadable') return;
    const stored = loaded.status === 'elsewhere' ? loaded.record.files : loaded.stored;
    for (const { sha256 } of stored) await this.#options.blobs.release(sha256);
    const isInUse = (sha256: string): boolean =>
      this.#catalogue
        .names()
        .some((name) => this.#catalogue.versions(name).some(({ modelSha256 }) => modelSha256 === sha256));
    for (const { sha256 } of loaded.record.files) {
      if (isInUse(sha256)) continue;
      await this.#options.validations.forget(sha256);
      await this.#options.rows.forget(sha256);
    }
  }

  /** Deletes the files of a version, or a function, that no entry names; after a kill the next start does. */
  async discard(folder: string): Promise<void> {
    const trash = this.#options.data.stagingPath();
    // Deleted by hand: there is nothing to do.
    await ifThere(rename(folder, trash));
    await discardTree(trash);
  }
}
