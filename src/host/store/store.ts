/** The model store: published versions on disk, functions from folders, and the registry of both. */
import { mkdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { HostError } from '../errors.ts';
import type { FunctionVersion, Publication, RegistryChange } from '../types.ts';
import { BlobStore } from './blobs.ts';
import { DataFolder } from './data-folder.ts';
import { diskError, hasCode, namesIn, removeTree, syncFolder, writeFileDurably } from './disk.ts';
import { FolderFunctions, type FolderFunction } from './folder-functions.ts';
import { FunctionTable } from './function-table.ts';
import { removeOtherHandlers } from './handlers.ts';
import { KeyedMutex } from './mutex.ts';
import {
  checkFunctionName,
  checkSha256,
  checkVersion,
  isFunctionName,
  isVersion,
  nextVersion,
  quoted,
  uploadedModel,
  versionFile,
} from './names.ts';
import { StagedPublication, type Published, type StagedUpload } from './publication.ts';
import { parseUploadSettings, resolveSettings, type GivenSettings } from './settings.ts';
import type { DiskModelStore, ModelStoreOptions } from './types.ts';
import { Validations } from './validation.ts';
import {
  loadRecord,
  unreadableVersion,
  uploadedVersion,
  type LoadedRecord,
  type StoredFile,
  type VersionRecord,
} from './version-record.ts';

/** Folders read at once at start; more would only queue up for the same disk. */
const foldersAtOnce = 8;
/** Any upload is current over the folder's version, except one of which not even the order is known. */
const folderSequence = -1;
const unreadableSequence = -2;

/** A store on `dataDir`; nothing is read or written before `start`. */
export function createModelStore(options: ModelStoreOptions): DiskModelStore {
  return new Store(options);
}

class Store implements DiskModelStore {
  readonly #options: ModelStoreOptions;
  readonly #data: DataFolder;
  readonly #blobs: BlobStore;
  readonly #validations: Validations;
  readonly #folders: FolderFunctions;
  readonly #table: FunctionTable;
  /** Every published version by name and version, also those that a folder's version hides. */
  readonly #uploads = new Map<string, Map<string, LoadedRecord>>();
  readonly #shipped = new Map<string, FolderFunction>();
  /** `name@version` of uploads under way that said their version. */
  readonly #underWay = new Set<string>();
  /** By function name: whatever changes its versions. By `reload name`: whoever reads its folder. */
  readonly #mutex = new KeyedMutex();
  #sequence = 0;
  /** Settled when everything on disk is known; validations may still be under way. */
  #takenIn: Promise<void> | undefined;

  constructor(options: ModelStoreOptions) {
    this.#options = options;
    this.#data = new DataFolder(options.dataDir);
    this.#blobs = new BlobStore(this.#data.blobs);
    this.#validations = new Validations(this.#data.validated, options.validate);
    this.#folders = new FolderFunctions({
      functionsDir: options.functionsDir,
      handlersDir: this.#data.handlers,
      defaults: options.defaults,
      validations: this.#validations,
      logger: options.logger,
    });
    this.#table = new FunctionTable(options.logger);
  }

  names(): readonly string[] {
    return this.#table.names();
  }

  versions(name: string): readonly FunctionVersion[] {
    return this.#table.versions(name);
  }

  find(name: string, version?: string): FunctionVersion | undefined {
    return this.#table.find(name, version);
  }

  onChange(listener: (change: RegistryChange) => void): void {
    this.#table.onChange(listener);
  }

  async start(): Promise<void> {
    this.#takenIn = this.#takeIn();
    await this.#takenIn;
    // One after another: the validator has one process at a time anyway, and an upload may go in between.
    for (const [name, shipped] of this.#shipped) {
      const validated = await this.#folders.validate(shipped);
      if (this.#shipped.get(name) !== shipped) continue; // It was reloaded meanwhile.
      this.#shipped.set(name, validated);
      this.#refresh(name);
      if (shipped.version.state.status === 'validating') this.#logProblem(name);
    }
  }

  async beginPublish(name: string, version: string | undefined): Promise<Publication> {
    checkFunctionName(name);
    if (version !== undefined) checkVersion(version);
    await this.#ready();
    if (version !== undefined) this.#reserve(name, version);
    const folder = this.#data.stagingPath();
    const release = (): void => {
      if (version !== undefined) this.#underWay.delete(`${name}@${version}`);
    };
    try {
      await mkdir(folder);
    } catch (error) {
      release();
      throw diskError(error);
    }
    return new StagedPublication({
      name,
      version,
      folder,
      bytesMax: this.#options.limits.uploadBytesMax,
      blobs: this.#blobs,
      publish: async (staged, settings) => await this.#publish(staged, settings),
      onEnd: release,
    });
  }

  async remove(name: string, version: string | undefined): Promise<void> {
    checkFunctionName(name);
    if (version !== undefined) checkVersion(version);
    await this.#ready();
    await this.#mutex.run(name, async () => {
      this.#checkRemovable(name, version);
      if (version === undefined || this.#uploads.get(name)?.size === 1) await this.#removeAll(name);
      else await this.#removeOne(name, version);
      this.#options.logger.info({ function: name, version }, 'removed');
    });
  }

  async reload(name: string): Promise<void> {
    checkFunctionName(name);
    await this.#ready();
    await this.#mutex.run(`reload ${name}`, async () => {
      const read = await this.#folders.read(name);
      if (read === undefined && this.find(name) === undefined) throw unknownFunction(name);
      const shipped = read === undefined ? undefined : await this.#folders.validate(read);
      await this.#mutex.run(name, async () => {
        if (shipped === undefined) this.#shipped.delete(name);
        else this.#shipped.set(name, shipped);
        this.#refresh(name);
        this.#logProblem(name);
      });
    });
  }

  hasBlob(sha256: string): boolean {
    return this.#blobs.has(sha256);
  }

  async putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    checkSha256(sha256);
    await this.#ready();
    await this.#blobs.put(sha256, stream, this.#options.limits.uploadBytesMax, this.#data.stagingPath());
  }

  async close(): Promise<void> {
    try {
      await this.#ready();
    } catch {
      return; // It never came to hold the data folder, or is not certain to.
    }
    await this.#data.close();
  }

  async #ready(): Promise<void> {
    if (this.#takenIn === undefined) throw new Error('the model store was used before it was started');
    await this.#takenIn;
  }

  async #takeIn(): Promise<void> {
    await this.#data.open();
    await this.#blobs.start();
    for (const name of await namesIn(this.#data.functions)) {
      const folder = this.#data.functionFolder(name);
      const versions = await namesIn(folder);
      if (!isFunctionName(name)) {
        this.#options.logger.warn({ folder }, 'a folder in the model store is left out: it is not a function');
      } else if (versions.length === 0) {
        await rmdir(folder).catch(() => undefined); // The last version was removed, and then the host was killed.
      } else {
        for (const version of versions.filter(isVersion)) await this.#takeInUpload(name, version);
      }
    }
    await this.#blobs.collect();
    const shippedNames = await this.#folders.names();
    for (let at = 0; at < shippedNames.length; at += foldersAtOnce) {
      await Promise.all(shippedNames.slice(at, at + foldersAtOnce).map((name) => this.#takeInFolder(name)));
    }
    for (const name of new Set([...this.#uploads.keys(), ...this.#shipped.keys()])) {
      this.#refresh(name);
      this.#logProblem(name);
    }
    await this.#forgetUnused();
  }

  async #takeInUpload(name: string, version: string): Promise<void> {
    const loaded = await loadRecord(this.#data.versionFolder(name, version), name, version);
    this.#uploadsOf(name).set(version, loaded);
    if (loaded.status !== 'unreadable') this.#sequence = Math.max(this.#sequence, loaded.record.sequence);
  }

  async #takeInFolder(name: string): Promise<void> {
    const read = await this.#folders.read(name);
    if (read !== undefined) this.#shipped.set(name, await this.#folders.recall(read));
  }

  async #forgetUnused(): Promise<void> {
    const handlers = new Set<string>();
    const models = new Set<string>();
    for (const { handler } of this.#shipped.values()) if (handler.status === 'compiled') handlers.add(handler.path);
    for (const name of this.names()) for (const { modelSha256 } of this.versions(name)) models.add(modelSha256);
    await removeOtherHandlers(this.#data.handlers, handlers);
    await this.#validations.keepOnly(models);
  }

  #uploadsOf(name: string): Map<string, LoadedRecord> {
    let uploads = this.#uploads.get(name);
    if (uploads === undefined) {
      uploads = new Map();
      this.#uploads.set(name, uploads);
    }
    return uploads;
  }

  /** Brings the registry's versions of one name up to what the folder and the disk say. */
  #refresh(name: string): void {
    const { defaults } = this.#options;
    const shipped = this.#shipped.get(name);
    const wanted = new Map<string, { value: FunctionVersion; sequence: number }>();
    for (const [version, loaded] of this.#uploads.get(name) ?? []) {
      const folder = this.#data.versionFolder(name, version);
      if (loaded.status === 'unreadable') {
        const value = unreadableVersion(name, version, folder, defaults, loaded.reason);
        wanted.set(version, { value, sequence: unreadableSequence });
      } else {
        const value = uploadedVersion(loaded, folder, defaults, shipped);
        wanted.set(version, { value, sequence: loaded.record.sequence });
      }
    }
    if (shipped !== undefined) {
      const { version } = shipped;
      if (wanted.has(version.version)) {
        this.#options.logger.warn({ function: version.key }, 'a folder function hides an upload of the same version');
      }
      wanted.set(version.version, { value: version, sequence: folderSequence });
    }
    for (const [version, { value, sequence }] of wanted) {
      const known = this.#table.find(name, version);
      if (known === undefined || JSON.stringify(known) !== JSON.stringify(value)) this.#table.set(value, sequence);
    }
    for (const { version } of this.#table.versions(name)) {
      if (!wanted.has(version)) this.#table.delete(name, version);
    }
  }

  #logProblem(name: string): void {
    for (const { key, state } of this.versions(name)) {
      if (state.status === 'unavailable') {
        this.#options.logger.error({ function: key, reason: state.reason }, 'a function is unavailable');
      }
    }
  }

  /** Throws HostError 'folder-function' or 'publish-in-progress'. */
  #reserve(name: string, version: string): void {
    this.#mustNotBeShipped(name, version);
    const key = `${name}@${version}`;
    if (this.#underWay.has(key)) {
      throw new HostError(
        'publish-in-progress',
        `another upload of function '${name}' version '${version}' is under way`,
      );
    }
    this.#underWay.add(key);
  }

  #mustNotBeShipped(name: string, version: string): void {
    if (this.#shipped.get(name)?.version.version !== version) return;
    throw new HostError(
      'folder-function',
      `version '${version}' of function '${name}' ships in the functions folder and can only be changed there`,
    );
  }

  async #publish(staged: StagedUpload, rawSettings: unknown): Promise<Published> {
    const model = staged.files.find(({ name }) => name === uploadedModel);
    if (model === undefined) throw new HostError('bad-request', `the upload brings no file '${uploadedModel}'`);
    const { version: said, ...settings } = parseUploadSettings(rawSettings, model.sha256);
    if (staged.version !== undefined && said !== undefined && said !== staged.version) {
      throw new HostError(
        'bad-settings',
        `setting 'version' is '${said}', but the upload was begun for version '${staged.version}'`,
      );
    }
    const files = [model, ...staged.files.filter((file) => file !== model)];
    if (staged.version !== undefined || said === undefined) {
      return await this.#publishChecked(staged, staged.version, settings, files);
    }
    this.#reserve(staged.name, said);
    try {
      return await this.#publishChecked(staged, said, settings, files);
    } finally {
      this.#underWay.delete(`${staged.name}@${said}`);
    }
  }

  async #publishChecked(
    { name, folder }: StagedUpload,
    wanted: string | undefined,
    settings: GivenSettings,
    files: readonly StoredFile[],
  ): Promise<Published> {
    const [model] = files;
    const known = this.#published(name, wanted, settings, files);
    if (known !== undefined) return { version: known, created: false };
    // Outside the lock: a validation may take long, and other versions of the function need not wait for it.
    const validated = await this.#validations.check(join(folder, uploadedModel), model?.sha256 ?? '');
    checkExternalFiles(files, validated.externalFiles);
    return await this.#mutex.run(name, async () => {
      const knownNow = this.#published(name, wanted, settings, files);
      if (knownNow !== undefined) return { version: knownNow, created: false };
      const version = wanted ?? nextVersion(this.#versionsTaken(name));
      const record: VersionRecord = {
        format: 1,
        name,
        version,
        sequence: this.#sequence + 1,
        publishedAtMs: Date.now(),
        settings,
        files,
        metadata: validated.metadata,
      };
      // Taken before the first await, so that publications of other functions cannot take the same number.
      this.#sequence = record.sequence;
      try {
        await this.#switchOver(folder, record);
      } catch (error) {
        throw diskError(error);
      }
      this.#uploadsOf(name).set(version, { status: 'whole', record });
      this.#refresh(name);
      const published = this.find(name, version);
      if (published === undefined) throw new Error(`${name}@${version} was published, but is not in the registry`);
      this.#options.logger.info({ function: published.key, bytes: published.modelBytes }, 'published');
      return { version: published, created: true };
    });
  }

  /** One rename makes the version: before it nothing has changed, after it everything has. */
  async #switchOver(folder: string, record: VersionRecord): Promise<void> {
    const { name, version, files } = record;
    for (const file of files) await this.#blobs.takeIn(file.sha256, join(folder, file.name), file.bytes);
    await this.#blobs.sync();
    await writeFileDurably(join(folder, versionFile), `${JSON.stringify(record, undefined, 2)}\n`);
    for (const inner of foldersOf(files)) await syncFolder(join(folder, inner));
    const target = this.#data.versionFolder(name, version);
    if ((await mkdir(dirname(target), { recursive: true })) !== undefined) await syncFolder(this.#data.functions);
    if (this.#uploads.get(name)?.has(version) === true) await this.#discard(target); // Damaged: it gives way.
    await rename(folder, target);
    await syncFolder(dirname(target)).catch((error: unknown) => {
      // It is published; whether a power cut would undo it, the disk could not say.
      this.#options.logger.error({ err: error, function: `${name}@${version}` }, 'a published version was not flushed');
    });
  }

  /**
   * The version that these bytes and settings are already: the wanted one, or without a wish the current one. Throws
   * HostError 'version-exists' when the wanted version is something else.
   */
  #published(
    name: string,
    wanted: string | undefined,
    settings: GivenSettings,
    files: readonly StoredFile[],
  ): FunctionVersion | undefined {
    if (wanted !== undefined) this.#mustNotBeShipped(name, wanted);
    const known = this.#table.find(name, wanted);
    if (known === undefined) return undefined;
    const loaded = known.source === 'upload' ? this.#uploads.get(name)?.get(known.version) : undefined;
    if (known.source === 'upload' && loaded?.status !== 'whole') return undefined;
    const same =
      sameSettings(known, resolveSettings(settings, this.#options.defaults, this.#shipped.get(name)?.given)) &&
      (loaded?.status === 'whole' ? sameFiles(loaded.record.files, files) : isOnlyFile(known, files));
    if (same) return known;
    if (wanted === undefined) return undefined;
    throw new HostError(
      'version-exists',
      `version '${wanted}' of function '${name}' is published already, with another model or other settings`,
    );
  }

  *#versionsTaken(name: string): Iterable<string> {
    for (const { version } of this.versions(name)) yield version;
    yield* this.#uploads.get(name)?.keys() ?? [];
    for (const key of this.#underWay) if (key.startsWith(`${name}@`)) yield key.slice(name.length + 1);
  }

  /** Throws HostError 'unknown-function', 'unknown-version' or 'folder-function'. */
  #checkRemovable(name: string, version: string | undefined): void {
    const versions = this.versions(name);
    if (versions.length === 0) throw unknownFunction(name);
    if (version === undefined) {
      const shipped = versions.find(({ source }) => source === 'folder');
      if (shipped !== undefined) this.#mustNotBeShipped(name, shipped.version);
      return;
    }
    if (this.find(name, version) === undefined) {
      throw new HostError('unknown-version', `function '${name}' has no version ${quoted(version)}`);
    }
    this.#mustNotBeShipped(name, version);
  }

  async #removeAll(name: string): Promise<void> {
    const removed = [...(this.#uploads.get(name)?.values() ?? [])];
    await this.#discard(this.#data.functionFolder(name), () => {
      this.#uploads.delete(name);
      this.#refresh(name);
    });
    for (const loaded of removed) await this.#releaseBlobs(loaded);
  }

  async #removeOne(name: string, version: string): Promise<void> {
    const uploads = this.#uploadsOf(name);
    const removed = uploads.get(version);
    await this.#discard(this.#data.versionFolder(name, version), () => {
      uploads.delete(version);
      this.#refresh(name);
    });
    if (removed !== undefined) await this.#releaseBlobs(removed);
  }

  async #releaseBlobs(loaded: LoadedRecord): Promise<void> {
    if (loaded.status === 'unreadable') return;
    for (const { sha256 } of loaded.record.files) await this.#blobs.release(sha256);
  }

  /** One rename takes a folder away, then its files are deleted; a kill in between leaves them to the next start. */
  async #discard(folder: string, onGone?: () => void): Promise<void> {
    const trash = this.#data.stagingPath();
    try {
      await rename(folder, trash);
    } catch (error) {
      if (!hasCode(error, 'ENOENT')) throw error; // Deleted by hand: then it only remains to forget it.
    }
    onGone?.();
    await syncFolder(dirname(folder)).catch((error: unknown) => {
      if (!hasCode(error, 'ENOENT')) throw error;
    });
    await removeTree(trash);
  }
}

/** Throws HostError 'model-refused' naming the file that is missing, or 'bad-request' naming one too many. */
function checkExternalFiles(files: readonly StoredFile[], external: readonly string[]): void {
  const uploaded = new Set(files.map(({ name }) => name));
  const missing = external.find((name) => !uploaded.has(name));
  if (missing !== undefined) {
    throw new HostError(
      'model-refused',
      `the model was refused: it keeps weights in the file ${quoted(missing)}, which was not uploaded`,
    );
  }
  const extra = files.find(({ name }) => name !== uploadedModel && !external.includes(name));
  if (extra !== undefined) {
    throw new HostError(
      'bad-request',
      `the upload brings the file ${quoted(extra.name)}, which the model does not name`,
    );
  }
}

/** Every folder of an upload that got names, innermost first. */
function foldersOf(files: readonly StoredFile[]): string[] {
  const folders = new Set<string>(['.']);
  for (const { name } of files) {
    for (let folder = dirname(name); folder !== '.'; folder = dirname(folder)) folders.add(folder);
  }
  return [...folders].sort((left, right) => right.length - left.length);
}

function sameFiles(known: readonly StoredFile[], files: readonly StoredFile[]): boolean {
  return (
    known.length === files.length &&
    known.every((file) => files.some(({ name, sha256 }) => name === file.name && sha256 === file.sha256))
  );
}

/** Of a folder's version only the model's own hash is known, so this holds for models of one file. */
function isOnlyFile(known: FunctionVersion, files: readonly StoredFile[]): boolean {
  const [model] = files;
  return (
    files.length === 1 &&
    known.state.status === 'ready' &&
    model?.sha256 === known.modelSha256 &&
    model.bytes === known.modelBytes
  );
}

/** Where the model lies in its folder makes no difference to what it does. */
function sameSettings(known: FunctionVersion, settings: FunctionVersion['settings']): boolean {
  return JSON.stringify({ ...known.settings, model: '' }) === JSON.stringify({ ...settings, model: '' });
}

function unknownFunction(name: string): HostError {
  return new HostError('unknown-function', `no function '${name}' is registered`);
}
