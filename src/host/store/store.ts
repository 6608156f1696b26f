/** The model store: published versions on disk, functions from folders, and the registry of both. */
import { mkdir, rename, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { type HeaderOf, type Traffic } from '../traffic.ts';
import type { FunctionVersion, Publication, RegistryChange, SettingsOverride } from '../types.ts';
import { BlobStore } from './blobs.ts';
import { DataFolder, moveData } from './data-folder.ts';
import { discardTree, diskError, hasCode, namesIn, syncFolder, writeFileDurably } from './disk.ts';
import { FolderFunctions, type FolderFunction } from './folder-functions.ts';
import { FunctionTable } from './function-table.ts';
import { removeOtherHandlers } from './handlers.ts';
import { Integrity } from './integrity.ts';
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
import { ServingRecords, trafficOf } from './serving.ts';
import {
  changedFurther,
  inheritSettings,
  overridden,
  parseSettingsChange,
  parseUploadSettings,
  resolveSettings,
  withChange,
  type GivenSettings,
} from './settings.ts';
import type { DiskModelStore, ModelStoreOptions } from './types.ts';
import { checkExternalFiles, foldersOf, isOnlyFile, sameFiles, sameSettings } from './uploaded-files.ts';
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
  readonly #serving: ServingRecords;
  /** Every published version by name and version, also those that a folder's version hides. */
  readonly #uploads = new Map<string, Map<string, LoadedRecord>>();
  readonly #shipped = new Map<string, FolderFunction>();
  /** `name@version` of uploads under way that said their version. */
  readonly #underWay = new Set<string>();
  /** By function name: whatever changes its versions. By `reload name`: whoever reads its folder. */
  readonly #mutex = new KeyedMutex();
  readonly #integrity: Integrity;
  /** What the latest load of a function has brought; kept in memory only, as Triton does. */
  readonly #overrides = new Map<string, SettingsOverride>();
  #sequence = 0;
  /** Settled when the files of every published version have been hashed. */
  #verifying: Promise<void> = Promise.resolve();
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
    this.#serving = new ServingRecords(this.#data.serving, options.logger);
    this.#integrity = new Integrity({
      blobs: this.#blobs,
      data: this.#data,
      uploads: this.#uploads,
      logger: options.logger,
      healFrom: options.healFrom ?? { hostUrls: [] },
      onChanged: (name) => {
        this.#refresh(name);
        this.#logProblem(name);
      },
    });
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

  choose(name: string, headerOf: HeaderOf): FunctionVersion | undefined {
    return this.#table.choose(name, headerOf);
  }

  traffic(name: string): Traffic | undefined {
    return this.#table.traffic(name);
  }

  onChange(listener: (change: RegistryChange) => void): void {
    this.#table.onChange(listener);
  }

  hurry({ key }: FunctionVersion): void {
    this.#integrity.hurry(key);
  }

  async start(): Promise<void> {
    this.#takenIn = this.#takeIn();
    await this.#takenIn;
    this.#verifying = this.#integrity.run();
    // One after another: the validator has one process at a time anyway, and an upload may go in between.
    for (const [name, shipped] of this.#shipped) {
      const validated = await this.#folders.validate(shipped);
      if (this.#shipped.get(name) !== shipped) continue; // It was reloaded meanwhile.
      this.#shipped.set(name, validated);
      this.#refresh(name);
      if (shipped.version.state.status === 'validating') this.#logProblem(name);
    }
  }

  async verified(): Promise<void> {
    await this.#verifying;
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
      try {
        if (version === undefined || this.#uploads.get(name)?.size === 1) await this.#removeAll(name);
        else await this.#removeOne(name, version);
      } catch (error) {
        throw diskError(error);
      }
      this.#options.logger.info({ function: name, version }, 'removed');
    });
  }

  async changeSettings(
    name: string,
    version: string | undefined,
    raw: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const change = parseSettingsChange(raw);
    await this.#ready();
    await this.#mutex.run(name, async () => {
      if (this.find(name) === undefined) throw unknownFunction(name);
      if (version !== undefined && this.find(name, version) === undefined) throw unknownVersion(name, version);
      const record = this.#serving.get(name);
      const changed = version === undefined ? this.versions(name).map((each) => each.version) : [version];
      const settings = { ...record.settings };
      for (const each of changed) {
        settings[each] = changedFurther(settings[each] ?? {}, change);
        if (Object.keys(settings[each]).length === 0) delete settings[each];
      }
      await this.#writeServing(name, { ...record, settings });
      this.#refresh(name);
      this.#options.logger.info({ function: name, version, ...change }, 'settings changed');
    });
  }

  async changeTraffic(name: string, change: (now: Traffic) => Traffic): Promise<Traffic> {
    await this.#ready();
    return await this.#mutex.run(name, async () => {
      const current = this.find(name);
      if (current === undefined) throw unknownFunction(name);
      const record = this.#serving.get(name);
      const now = trafficOf(record, current.version);
      const traffic = change(now);
      const named = [...traffic.shares, ...traffic.headers, ...(traffic.shadow === undefined ? [] : [traffic.shadow])];
      const missing = named.find((each) => this.find(name, each.version) === undefined);
      if (missing !== undefined) throw unknownVersion(name, missing.version);
      await this.#writeServing(name, { ...record, traffic });
      this.#table.setTraffic(name, traffic);
      return traffic;
    });
  }

  async #writeServing(name: string, record: ReturnType<ServingRecords['get']>): Promise<void> {
    try {
      await this.#serving.write(name, record);
    } catch (error) {
      throw diskError(error);
    }
  }

  async reload(name: string, override?: SettingsOverride): Promise<void> {
    checkFunctionName(name);
    await this.#ready();
    await this.#mutex.run(`reload ${name}`, async () => {
      const read = await this.#folders.read(name);
      if (read === undefined && this.find(name) === undefined) throw unknownFunction(name);
      const shipped = read === undefined ? undefined : await this.#folders.validate(read);
      await this.#mutex.run(name, async () => {
        this.#mustNotBreak(name, shipped);
        if (shipped === undefined) this.#shipped.delete(name);
        else this.#shipped.set(name, shipped);
        if (override === undefined) this.#overrides.delete(name);
        else this.#overrides.set(name, override);
        this.#refresh(name);
        this.#logProblem(name);
      });
    });
  }

  /** A folder with a mistake in it does not take the place of one that serves. Throws HostError 'model-refused'. */
  #mustNotBreak(name: string, next: FolderFunction | undefined): void {
    const before = this.#shipped.get(name)?.version.state;
    if (before?.status !== 'ready' || next?.version.state.status !== 'unavailable') return;
    const { reason } = next.version.state;
    this.#options.logger.error({ function: name, reason }, 'a changed function folder was not taken over');
    throw new HostError(
      'model-refused',
      `the folder of function '${name}' was not taken over: ${reason}; what served before goes on serving`,
    );
  }

  hasBlob(sha256: string): boolean {
    return this.#blobs.has(sha256);
  }

  async soundFile(sha256: string): Promise<string | undefined> {
    const path = this.#blobs.pathOf(sha256);
    return path !== undefined && (await this.#blobs.isSound(path, sha256)) ? path : undefined;
  }

  async putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    checkSha256(sha256);
    await this.#ready();
    await this.#blobs.put(sha256, stream, this.#options.limits.uploadBytesMax, this.#data.stagingPath());
    const blob = this.#blobs.pathOf(sha256);
    if (blob !== undefined) await this.#integrity.heal(sha256, blob);
  }

  async close(): Promise<void> {
    try {
      await this.#ready();
    } catch {
      return; // It never came to hold the data folder, or is not certain to.
    }
    this.#integrity.stop();
    await this.#verifying;
    await this.#data.close();
  }

  async #ready(): Promise<void> {
    if (this.#takenIn === undefined) throw new Error('the model store was used before it was started');
    await this.#takenIn;
  }

  async #takeIn(): Promise<void> {
    const { dataDirBefore, dataDir, logger } = this.#options;
    if (dataDirBefore !== undefined && (await moveData(dataDirBefore, dataDir))) {
      logger.info({ from: dataDirBefore, to: dataDir }, 'the data folder has moved out of the package');
    }
    const { from, to, backup } = await this.#data.open();
    if (backup !== undefined) logger.info({ from, to, backup }, 'the data folder was brought to the newest format');
    await this.#blobs.start();
    await this.#serving.start();
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
    if (loaded.status === 'unverified' || loaded.status === 'damaged') this.#integrity.add(loaded.record);
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
    if (wanted.size === 0) this.#overrides.delete(name);
    const override = this.#overrides.get(name);
    const changes = this.#serving.get(name).settings;
    for (const [version, { value: published, sequence }] of wanted) {
      const change = changes[version];
      const own = change === undefined ? published : { ...published, settings: withChange(published.settings, change) };
      const value = override === undefined ? own : { ...own, settings: overridden(own.settings, override) };
      const known = this.#table.find(name, version);
      if (known === undefined || JSON.stringify(known) !== JSON.stringify(value)) this.#table.set(value, sequence);
    }
    for (const { version } of this.#table.versions(name)) {
      if (!wanted.has(version)) this.#table.delete(name, version);
    }
    this.#table.setTraffic(name, this.#serving.get(name).traffic);
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
    { name, folder, holdBack }: StagedUpload,
    wanted: string | undefined,
    given: GivenSettings,
    files: readonly StoredFile[],
  ): Promise<Published> {
    const [model] = files;
    const settings = inheritSettings(given, this.#settingsBefore(name, wanted));
    const healed = new Set<string>();
    for (const file of files) {
      for (const key of await this.#integrity.heal(file.sha256, join(folder, file.name))) healed.add(key);
    }
    const known = this.#published(name, wanted, settings, files);
    if (known !== undefined) return { version: known, created: healed.has(known.key) };
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
      const serving = this.#serving.get(name);
      const current = this.find(name);
      const traffic = holdBack && current?.state.status === 'ready' ? trafficOf(serving, current.version) : undefined;
      try {
        // Before the new version is there, so that it serves nothing even if the host is killed in between.
        if (traffic !== undefined) await this.#serving.write(name, { ...serving, traffic });
        await this.#switchOver(folder, record);
        if (traffic === undefined && serving.traffic !== undefined) {
          await this.#serving.write(name, { ...serving, traffic: undefined });
        }
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
    for (const file of files) await this.#blobs.takeIn(file.sha256, join(folder, file.name));
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
    const record = loaded?.status === 'whole' || loaded?.status === 'unverified' ? loaded.record : undefined;
    if (known.source === 'upload' && record === undefined) return undefined;
    const same =
      sameSettings(known, resolveSettings(settings, this.#options.defaults, this.#shipped.get(name)?.given)) &&
      (record !== undefined ? sameFiles(record.files, files) : isOnlyFile(known, files));
    if (same) return known;
    if (wanted === undefined) return undefined;
    throw new HostError(
      'version-exists',
      `version '${wanted}' of function '${name}' is published already, with another model or other settings`,
    );
  }

  /** As they were given and changed since: of the wanted version where it exists, else of the one that serves. */
  #settingsBefore(name: string, wanted: string | undefined): GivenSettings {
    const uploads = this.#uploads.get(name);
    const version = wanted !== undefined && uploads?.has(wanted) === true ? wanted : this.find(name)?.version;
    if (version === undefined) return {};
    const before = uploads?.get(version);
    const published = before === undefined || before.status === 'unreadable' ? {} : before.record.settings;
    return inheritSettings(this.#serving.get(name).settings[version] ?? {}, published);
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
    if (this.find(name, version) === undefined) throw unknownVersion(name, version);
    this.#mustNotBeShipped(name, version);
  }

  async #removeAll(name: string): Promise<void> {
    const removed = [...(this.#uploads.get(name)?.values() ?? [])];
    const versions = [...(this.#uploads.get(name)?.keys() ?? [])];
    await this.#discard(this.#data.functionFolder(name), () => {
      this.#uploads.delete(name);
      this.#refresh(name);
    });
    await this.#forgetServing(name, versions);
    for (const loaded of removed) await this.#releaseBlobs(loaded);
  }

  async #removeOne(name: string, version: string): Promise<void> {
    const uploads = this.#uploadsOf(name);
    const removed = uploads.get(version);
    await this.#discard(this.#data.versionFolder(name, version), () => {
      uploads.delete(version);
      this.#refresh(name);
    });
    await this.#forgetServing(name, [version]);
    if (removed !== undefined) await this.#releaseBlobs(removed);
  }

  /** A later version of the same name begins without what was set for this one. */
  async #forgetServing(name: string, versions: readonly string[]): Promise<void> {
    const isGone = this.find(name) === undefined;
    for (const version of isGone ? [undefined] : versions) await this.#serving.forget(name, version);
    this.#table.setTraffic(name, this.#serving.get(name).traffic);
  }

  async #releaseBlobs(loaded: LoadedRecord): Promise<void> {
    if (loaded.status === 'unreadable') return;
    for (const { sha256 } of loaded.record.files) await this.#blobs.release(sha256);
    const isInUse = (sha256: string): boolean =>
      this.names().some((name) => this.versions(name).some(({ modelSha256 }) => modelSha256 === sha256));
    for (const { sha256 } of loaded.record.files) if (!isInUse(sha256)) await this.#validations.forget(sha256);
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
    await discardTree(trash);
  }
}

function unknownVersion(name: string, version: string): HostError {
  return new HostError('unknown-version', `function '${name}' has no version ${quoted(version)}`);
}

function unknownFunction(name: string): HostError {
  return new HostError('unknown-function', `no function '${name}' is registered`);
}
