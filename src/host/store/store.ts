/** The model store: published versions on disk, functions from folders, and the registry of both. */
import { copyFile, rename, rmdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Tensor } from '../../tensor/index.ts';
import {
  ContentCache,
  decodeName,
  readableFile,
  StoreAway,
  type FetchFile,
  type ReadableContent,
} from '../../store/index.ts';
import { calledAs, ifThere, inParallel, KeyedMutex, namesInFolder } from '../../tools/index.ts';
import { isMachineShort } from '../../hardware/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { HostError } from '../errors.ts';
import type { Traffic } from '../rollout/traffic.ts';
import type { FunctionVersion, ModelStore, Publisher, RowsState, SettingsOverride } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';
import { BlobStore } from './blobs.ts';
import { Catalogue } from './catalogue.ts';
import { Changes, storeUnavailable } from './changes.ts';
import { DataFolder, moveData } from './data-folder.ts';
import { onDisk, syncFile, tidy } from './disk.ts';
import { DiskUse } from './disk-use.ts';
import { Entries, trafficOf, withoutVersions } from './entries.ts';
import { FolderFunctions, type FolderFunction } from './folder-functions.ts';
import { removeOtherHandlers } from './handlers.ts';
import { Integrity } from './integrity.ts';
import {
  checkFunctionName,
  checkSha256,
  isFunctionName,
  checkVersion,
  unknownFunction,
  unknownVersion,
} from './names.ts';
import { Originals } from './originals.ts';
import type { StagedPublication } from './publication.ts';
import { Publishing } from './publishing.ts';
import { checkRowsInProcess, RowChecks } from './row-checks.ts';
import { StoreWatch } from './store-watch.ts';
import { changedFurther, parseSettingsChange } from './settings.ts';
import { sameFiles } from './uploaded-files.ts';
import type { ModelStoreOptions, SharedStore } from './types.ts';
import { Validations } from './validation.ts';
import { VersionFiles } from './version-files.ts';
import {
  loadVersion,
  manifestOf,
  storedFiles,
  type LoadedRecord,
  type StoredFile,
  type VersionRecord,
} from './version-record.ts';

/** Folders read at once at start; more would only queue up for the same disk. */
const foldersAtOnce = 8;

/** Files of a version that are fetched at once. */
const filesAtOnce = 4;

/** A version called more recently than this stays on the disk, whatever the budget. */
const usedForMs = 60_000;

/** A model store that owns its data folder until it is closed; nothing is read or written before `start`. */
export class DiskModelStore extends Catalogue implements ModelStore {
  readonly #options: ModelStoreOptions;
  readonly #data: DataFolder;
  readonly #blobs: BlobStore;
  readonly #validations: Validations;
  readonly #rows: RowChecks;
  readonly #folders: FolderFunctions;
  readonly #publishing: Publishing;
  /** By function name: for changes of its versions. By `reload name`: for reading its folder. */
  readonly #mutex = new KeyedMutex();
  readonly #changes: Changes;
  readonly #integrity: Integrity;
  readonly #files: VersionFiles;
  readonly #originals: Originals;
  readonly diskUse: DiskUse;
  /** Both only where the store is on another machine. */
  readonly watch: StoreWatch | undefined;
  readonly cache: ContentCache<VersionRecord> | undefined;
  #probing: Promise<void> | undefined;
  /** Settled when the files of every published version have been hashed. */
  #verifying: Promise<void> = Promise.resolve();
  /** Settled when everything on disk is known; validations may still be under way. */
  #takenIn: Promise<void> | undefined;

  constructor(options: ModelStoreOptions, data: DataFolder = new DataFolder(options.dataDir)) {
    super(data, options);
    const { functionsDir, defaults, logger, shared: far } = options;
    const blobs = new BlobStore(data);
    const validations = new Validations(data.validated, options.validate);
    const { inTurn, checkRows = checkRowsInProcess } = options;
    const rows = new RowChecks(data.rows, checkRows, inTurn, logger, (modelSha256) => {
      for (const name of this.names()) {
        if (this.versions(name).some((each) => each.modelSha256 === modelSha256)) this.refresh(name);
      }
    });
    this.#options = options;
    this.#data = data;
    this.#blobs = blobs;
    this.#validations = validations;
    this.#rows = rows;
    this.#folders = new FolderFunctions({ functionsDir, handlersDir: data.handlers, defaults, validations, logger });
    this.#integrity = new Integrity({
      blobs,
      data,
      uploads: this.uploads,
      logger,
      store: far?.store,
      onChanged: (name) => {
        this.refresh(name);
        this.logProblem(name);
      },
    });
    this.#changes = new Changes({
      entries: this.entries,
      mutex: this.#mutex,
      take: async (name) => await this.#take(name),
      tell: (name) => far?.broadcast?.tell(name),
    });
    this.#originals = new Originals(this, data);
    this.diskUse = new DiskUse({ uploads: this.uploads, caches: data.cache });
    this.onChange(() => this.diskUse.changed());
    const parts = { catalogue: this, data, blobs, validations, rows };
    this.#files = new VersionFiles(parts);
    this.#publishing = new Publishing({
      ...options,
      ...parts,
      changes: this.#changes,
      originals: this.#originals,
      integrity: this.#integrity,
      versionFiles: this.#files,
    });
    if (far === undefined) return;
    const { entries } = this;
    this.watch = new StoreWatch({
      store: far.store,
      entries,
      adopt: async (name) => await this.#changes.adopt(name),
      broadcast: far.broadcast,
      log: logger,
    });
    this.cache = new ContentCache<VersionRecord>({
      store: far.store,
      bytesMax: far.cacheBytes,
      staysMs: usedForMs,
      keyOf,
      filesOf: (record) => this.#storedOf(record) ?? record.files,
      chunks: {
        manifestOf: (record) => (this.#storedOf(record) === undefined ? manifestOf(record) : undefined),
        filesOf: storedFiles,
      },
      nameOf: keyOf,
      idleMs: (record) => far.idleMs(keyOf(record)),
      held: () => this.#whole(),
      isMissing: ({ name, version, files }) => {
        const loaded = this.uploads.get(name)?.get(version);
        return loaded?.status === 'elsewhere' && sameFiles(loaded.record.files, files);
      },
      hold: async (record, files, fetch) => await this.#hold(record, files, fetch),
      drop: async (record) => await this.#drop(record),
      log: logger,
    });
    this.onChange(() => this.cache?.changed());
  }

  protected override rowsOf(version: FunctionVersion): RowsState | undefined {
    return this.#rows.stateOf(version);
  }

  showRows(version: FunctionVersion, inputs: readonly Tensor[]): void {
    this.#rows.shown(version, inputs);
  }

  rowsMix(key: string, reason: string): void {
    const version = versionOf(this, key);
    if (version !== undefined) void this.#rows.mixed(version, reason);
  }

  hurry({ name, version, key, state }: FunctionVersion): void {
    this.#integrity.hurry(key);
    const loaded = this.uploads.get(name)?.get(version);
    if (state.status === 'elsewhere' && loaded?.status === 'elsewhere') this.cache?.want(loaded.record);
  }

  learn(name: string, version: string | undefined): Promise<unknown> | undefined {
    if (this.watch === undefined || this.find(name, version) !== undefined || !isFunctionName(name)) return undefined;
    return this.watch.lookUp(name, version);
  }

  async start(): Promise<void> {
    this.#takenIn = this.#takeIn();
    await this.#takenIn;
    this.#verifying = this.#integrity.run();
    this.watch?.start();
    // One after another: the validator has one process at a time anyway, and an upload may go in between.
    for (const [name, shipped] of this.shipped) {
      const validated = await this.#folders.validate(shipped);
      if (this.shipped.get(name) !== shipped) continue; // It was reloaded meanwhile.
      this.shipped.set(name, validated);
      this.refresh(name);
      if (shipped.version.state.status === 'validating') this.logProblem(name);
    }
  }

  /** Resolves when the files of every version that `start` found have been hashed. */
  async verified(): Promise<void> {
    await this.#verifying;
  }

  async beginPublish(name: string, version: string | undefined, publisher?: Publisher): Promise<StagedPublication> {
    checkFunctionName(name);
    if (version !== undefined) checkVersion(version);
    await this.#ready();
    await this.#mustAnswer(); // Before the bytes are sent.
    return await this.#publishing.begin(name, version, publisher);
  }

  async remove(name: string, version: string | undefined): Promise<void> {
    checkFunctionName(name);
    if (version !== undefined) checkVersion(version);
    await this.#ready();
    await this.#mustAnswer();
    await this.#changes.run(name, async () => {
      this.#mustBeRemovable(name, version);
      await this.#remove(name, version);
      this.#options.logger.info({ function: name, version }, 'removed');
    });
  }

  /** @throws HostError 'unknown-function', 'unknown-version' or 'folder-function' */
  #mustBeRemovable(name: string, version: string | undefined): void {
    const versions = this.versions(name);
    if (versions.length === 0) throw unknownFunction(name);
    if (version !== undefined && this.find(name, version) === undefined) throw unknownVersion(name, version);
    const shipped = version ?? versions.find(({ source }) => source === 'folder')?.version;
    if (shipped !== undefined) this.mustNotBeShipped(name, shipped);
  }

  /** The entry loses the versions first; then their bytes are deleted unless another version shares them. */
  async #remove(name: string, version: string | undefined): Promise<void> {
    const data = this.#data;
    const uploads = this.uploadsOf(name);
    const isAll = version === undefined || uploads.size === 1;
    const removed = new Map([...uploads].filter(([each]) => isAll || each === version));
    await this.#changes.commit(name, withoutVersions(this.entries.get(name), new Set(removed.keys())));
    for (const each of removed.keys()) uploads.delete(each);
    if (isAll) this.uploads.delete(name);
    this.refresh(name);
    await onDisk(async () => {
      await this.#files.discard(isAll ? data.functionFolder(name) : data.versionFolder(name, version));
      for (const loaded of removed.values()) await this.#files.release(loaded);
    });
  }

  async changeSettings(
    name: string,
    version: string | undefined,
    raw: Readonly<Record<string, unknown>>,
  ): Promise<void> {
    const change = parseSettingsChange(raw);
    await this.#ready();
    await this.#mustAnswer();
    await this.#changes.run(name, async () => {
      if (this.find(name) === undefined) throw unknownFunction(name);
      if (version !== undefined && this.find(name, version) === undefined) throw unknownVersion(name, version);
      const entry = this.entries.get(name);
      const changed = version === undefined ? this.versions(name).map((each) => each.version) : [version];
      const settings = { ...entry.settings };
      for (const each of changed) {
        settings[each] = changedFurther(settings[each] ?? {}, change);
        if (Object.keys(settings[each]).length === 0) delete settings[each];
        const known = this.find(name, each);
        if (known !== undefined)
          await this.#rows.admit({ ...known, settings: this.settingsAfter(known, settings[each] ?? {}) });
      }
      await this.#changes.commit(name, { ...entry, settings });
      this.refresh(name);
      this.#options.logger.info({ function: name, version, ...change }, 'settings changed');
    });
  }

  async changeTraffic(name: string, change: (now: Traffic) => Traffic): Promise<Traffic> {
    await this.#ready();
    await this.#mustAnswer();
    return await this.#changes.run(name, async () => {
      const current = this.find(name);
      if (current === undefined) throw unknownFunction(name);
      const entry = this.entries.get(name);
      const now = trafficOf(entry, current.version);
      const traffic = change(now);
      const missing = traffic.shares.find((each) => this.find(name, each.version) === undefined);
      if (missing !== undefined) throw unknownVersion(name, missing.version);
      await this.#changes.commit(name, { ...entry, traffic });
      this.setTraffic(name, traffic);
      return traffic;
    });
  }

  // With a store on another machine

  /** Called under the function's lock. */
  async #take(name: string): Promise<void> {
    await this.#files.adopt(name);
    for (const { sequence } of this.entries.get(name).versions) this.#publishing.countFrom(sequence);
    if (this.uploadsOf(name).size === 0) this.uploads.delete(name);
    this.refresh(name);
  }

  /** Versions whose files are here, the one published first in front. */
  #whole(): readonly VersionRecord[] {
    const whole = [...this.uploads.values()].flatMap((versions) =>
      [...versions.values()].flatMap((each) => (each.status === 'whole' ? [each.record] : [])),
    );
    return whole.toSorted((one, other) => one.publishedAtMs - other.publishedAtMs);
  }

  /** Brings a function's files here before a call asks for them, if there is room. */
  bring(name: string): void {
    for (const each of this.uploads.get(name)?.values() ?? []) {
      if (each.status === 'elsewhere') this.cache?.want(each.record, true);
    }
  }

  async #drop(record: VersionRecord): Promise<void> {
    await this.#mutex.run(record.name, async () => {
      await this.#files.drop(record, () => this.refresh(record.name));
    });
  }

  /** What is here of a version; undefined: nothing, or it is not known. */
  #storedOf({ name, version, files }: VersionRecord): readonly StoredFile[] | undefined {
    const loaded = this.uploads.get(name)?.get(version);
    if (loaded?.status !== 'whole' && loaded?.status !== 'unverified') return undefined;
    return sameFiles(loaded.record.files, files) ? loaded.stored : undefined;
  }

  async #hold(record: VersionRecord, files: readonly StoredFile[], fetch: FetchFile): Promise<void> {
    await onDisk(async () => await inParallel(files, async (file) => await this.#files.keep(file, fetch), filesAtOnce));
    await this.#mutex.run(record.name, async () => {
      if (await this.#files.settle(record)) this.refresh(record.name);
    });
  }

  /** @throws HostError 'store-unavailable' */
  async #mustAnswer(): Promise<void> {
    if (this.watch === undefined) return;
    if (this.watch.trouble !== undefined) await this.watch.look();
    if (this.watch.trouble !== undefined) throw storeUnavailable(new Error(this.watch.trouble.reason));
    await this.#probed();
  }

  /** Asks once whether the store keeps its promises. @throws HostError 'store-unavailable' */
  async #probed(): Promise<void> {
    this.#probing ??= this.#options.shared?.store.probe();
    try {
      await this.#probing;
    } catch (error) {
      this.#probing = undefined;
      throw error instanceof StoreAway ? storeUnavailable(error) : error;
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
        const before = [this.shipped.get(name), this.overrides.get(name)] as const;
        this.#reloaded(name, shipped, override);
        try {
          for (const version of this.versions(name)) await this.#rows.admit(version);
        } catch (error) {
          this.#reloaded(name, ...before);
          throw error;
        }
        this.logProblem(name);
      });
    });
  }

  #reloaded(name: string, shipped: FolderFunction | undefined, override: SettingsOverride | undefined): void {
    if (shipped === undefined) this.shipped.delete(name);
    else this.shipped.set(name, shipped);
    if (override === undefined) this.overrides.delete(name);
    else this.overrides.set(name, override);
    this.refresh(name);
  }

  /** A broken folder must not replace one that serves. @throws HostError 'model-refused' */
  #mustNotBreak(name: string, next: FolderFunction | undefined): void {
    const before = this.shipped.get(name)?.version.state;
    if (before?.status !== 'ready' || next?.version.state.status !== 'unavailable') return;
    const { reason } = next.version.state;
    this.#options.logger.error({ function: name, reason }, 'a changed function folder was not taken over');
    throw new HostError(
      isMachineShort(reason) ? 'machine-short' : 'model-refused',
      `the folder of function '${name}' was not taken over: ${reason}; what served before goes on serving`,
    );
  }

  hasBlob(sha256: string): boolean {
    return this.#blobs.has(sha256) || this.#originals.find(sha256) !== undefined;
  }

  async openContent(sha256: string): Promise<ReadableContent | undefined> {
    const path = this.#blobs.pathOf(sha256);
    if (path !== undefined && (await this.#blobs.isSound(path, sha256))) return await readableFile(path);
    return await this.#originals.open(sha256);
  }

  async putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    checkSha256(sha256);
    await this.#ready();
    await this.#blobs.put(sha256, stream, this.#options.limits.uploadBytesMax, this.#data.stagingPath());
    const blob = this.#blobs.pathOf(sha256);
    if (blob !== undefined) await this.#integrity.heal(sha256, blob);
  }

  /**
   * Puts a file into the store that no entry names. In the data folder it stays for a day, also over a restart: workers
   * on this machine read it there.
   */
  async put(file: StoredFile, path: string): Promise<void> {
    await this.#ready();
    const { shared } = this.#options;
    if (shared !== undefined) return await shared.store.put(file, path);
    await onDisk(async () => {
      await this.#files.keep(file, async (_file, to) => {
        await copyFile(path, to); // Not a link: the file in its folder may be changed later.
        await syncFile(to);
      });
    });
  }

  /** Releases the data folder for other hosts. Uploads must have ended. */
  async close(): Promise<void> {
    try {
      await this.#ready();
    } catch {
      return; // It never owned the data folder, or is not sure to.
    }
    this.#integrity.stop();
    this.#rows.stop();
    await Promise.all([this.#verifying, this.watch?.close(), this.cache?.close()]);
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
    await this.entries.start();
    if (this.#options.shared !== undefined) {
      await this.#mustKeepPromises();
      await this.#leaveOwnEntries(this.#options.shared);
    }
    await this.#rows.start();
    const folders = await namesInFolder(this.#data.functions);
    for (const folder of folders) {
      if (decodeName(folder) !== undefined) continue;
      logger.warn({ folder: join(this.#data.functions, folder) }, 'a folder in the model store is no function');
    }
    for (const name of new Set([...this.entries.names(), ...folders.flatMap((each) => decodeName(each) ?? [])])) {
      await this.#takeInUploads(name);
    }
    await tidy(() => this.#blobs.collect());
    const shippedNames = await this.#folders.names();
    for (let at = 0; at < shippedNames.length; at += foldersAtOnce) {
      await Promise.all(shippedNames.slice(at, at + foldersAtOnce).map((name) => this.#takeInFolder(name)));
    }
    for (const name of new Set([...this.uploads.keys(), ...this.shipped.keys()])) {
      this.refresh(name);
      this.logProblem(name);
    }
    await tidy(() => this.#forgetUnused());
  }

  /** One that is away is asked again before the first change. @throws ConfigError */
  async #mustKeepPromises(): Promise<void> {
    try {
      await this.#probed();
    } catch (error) {
      if (!(error instanceof HostError)) throw new ConfigError((error as Error).message);
    }
  }

  /**
   * A data folder that was a store itself until now: what it published must be in the shared store, which counts from
   * now on. @throws ConfigError
   */
  async #leaveOwnEntries({ store }: SharedStore): Promise<void> {
    const { root } = this.#data;
    const own = new Entries(this.#data.store, this.#options.logger);
    await own.start();
    const missing = own.names().filter((name) => {
      const there = this.entries.get(name).versions;
      const has = ({ version, files }: VersionRecord): boolean =>
        there.some((each) => each.version === version && sameFiles(each.files, files));
      return !own.get(name).versions.every(has);
    });
    if (missing.length > 0) {
      const some = missing.slice(0, 3).join("', '");
      throw new ConfigError(
        `the data folder ${root} has functions that ${store.place} does not have ('${some}'` +
          `${missing.length > 3 ? ` and ${missing.length - 3} more` : ''}): bring them there with ` +
          `"${calledAs()} store import ${root}", or choose another folder with --data-dir`,
      );
    }
    await ifThere(rename(join(root, 'entries'), join(root, 'entries-before-the-store'))).catch(() => undefined);
  }

  async #takeInUploads(name: string): Promise<void> {
    const { versions, unreadable = [] } = this.entries.get(name);
    const found = new Map<string, LoadedRecord>();
    for (const record of versions) {
      const loaded = await this.#takeInUpload(record);
      found.set(record.version, loaded);
      this.#publishing.countFrom(record.sequence);
      if (loaded.status === 'unverified' || loaded.status === 'damaged') this.#integrity.add(record);
    }
    for (const version of unreadable) found.set(version, { status: 'unreadable', reason: 'its record is lost' });
    const folder = this.#data.functionFolder(name);
    for (const each of await namesInFolder(folder)) {
      const version = decodeName(each);
      if (version === undefined || found.has(version)) continue;
      // Removed, and then the host was killed; or nothing is known of it because the entry is lost.
      if (this.entries.isReadable(name)) await tidy(() => this.#files.discard(join(folder, each)));
      else found.set(version, { status: 'unreadable', reason: "the entry of its function is lost: see 'entries'" });
    }
    if (found.size > 0) this.uploads.set(name, found);
    else await ifThere(rmdir(folder)).catch(() => undefined);
  }

  /** A version as the disk has it. One whose files are nowhere to be opened gets them from the blobs. */
  async #takeInUpload(record: VersionRecord): Promise<LoadedRecord> {
    const folder = this.#data.versionFolder(record.name, record.version);
    const loaded = await loadVersion(folder, record);
    if (loaded.status !== 'damaged' || (await ifThere(stat(folder))) !== undefined) return loaded;
    const stored = await this.#blobs.storedFiles(record).catch(() => []);
    if (stored.length === 0 || !stored.every(({ sha256 }) => this.#blobs.has(sha256))) {
      return this.#options.shared === undefined ? loaded : { status: 'elsewhere', record };
    }
    try {
      return { status: 'unverified', record, stored: await this.#files.install(record) };
    } catch {
      return loaded;
    }
  }

  async #takeInFolder(name: string): Promise<void> {
    const read = await this.#folders.read(name);
    if (read !== undefined) this.shipped.set(name, await this.#folders.recall(read));
  }

  async #forgetUnused(): Promise<void> {
    const handlers = new Set<string>();
    const models = new Set<string>();
    for (const { handler } of this.shipped.values()) if (handler.status === 'compiled') handlers.add(handler.path);
    for (const name of this.names()) for (const { modelSha256 } of this.versions(name)) models.add(modelSha256);
    await removeOtherHandlers(this.#data.handlers, handlers);
    await this.#validations.keepOnly(models);
    await this.#rows.keepOnly(models);
  }
}

const keyOf = ({ name, version }: VersionRecord): string => `${name}@${version}`;
