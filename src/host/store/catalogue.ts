/**
 * All functions that the host knows: published versions, versions from folders, and settings changed since. Whenever
 * one of these changes, the registry's versions of that name are updated.
 */
import { join } from 'node:path';
import { HostError } from '../errors.ts';
import type { FunctionVersion, RowsState, SettingsOverride, VersionState } from '../types.ts';
import type { DataFolder } from './data-folder.ts';
import type { FolderFunction } from './folder-functions.ts';
import type { HandlerOutcome } from './handlers.ts';
import { FunctionTable } from './function-table.ts';
import { handlerFile, uploadedModel } from './names.ts';
import { Entries } from './entries.ts';
import { EntryCopies } from './entry-copies.ts';
import { inheritSettings, overridden, resolveSettings, type GivenSettings } from './settings.ts';
import type { ModelStoreOptions } from './types.ts';
import { modelFiles, type LoadedRecord } from './version-record.ts';
import { getOrMake, given, type Log } from '../../tools/index.ts';

/** Any upload is newer than the folder's version, except one whose order is unknown. */
const folderSequence = -1;
const unreadableSequence = -2;

export class Catalogue extends FunctionTable {
  /** Every published version by name and version, including those that a folder's version hides. */
  readonly uploads = new Map<string, Map<string, LoadedRecord>>();
  readonly shipped = new Map<string, FolderFunction>();
  /** Settings from a function's latest load request; kept in memory only, as in Triton. */
  readonly overrides = new Map<string, SettingsOverride>();
  readonly entries: Entries;
  readonly #data: DataFolder;
  readonly #defaults: ModelStoreOptions['defaults'];
  readonly #logger: Log;
  /** By what is here of an upload: what the registry was given of it, and from which settings and functions of the folder. */
  readonly #made = new WeakMap<LoadedRecord, { readonly from: readonly unknown[]; readonly value: FunctionVersion }>();

  constructor(
    data: DataFolder,
    { defaults, logger, shared }: Pick<ModelStoreOptions, 'defaults' | 'logger' | 'shared'>,
  ) {
    super(logger);
    this.#data = data;
    this.#defaults = defaults;
    this.#logger = logger;
    this.entries =
      shared === undefined
        ? new Entries(data.store, logger)
        : new Entries(shared.store, logger, new EntryCopies(data.known));
  }

  uploadsOf(name: string): Map<string, LoadedRecord> {
    return getOrMake(this.uploads, name, () => new Map());
  }

  /**
   * Updates the registry's versions of one name from the folder and the disk. A publication is seldom the first of its name:
   * versions of which nothing has changed are not made anew.
   */
  refresh(name: string): void {
    const shipped = this.shipped.get(name);
    const changes = this.entries.get(name).settings;
    const wanted = new Map<string, { value: FunctionVersion; sequence: number }>();
    for (const [version, loaded] of this.uploads.get(name) ?? []) {
      const sequence = loaded.status === 'unreadable' ? unreadableSequence : loaded.record.sequence;
      const from = [shipped, changes[version]];
      const before = this.#made.get(loaded);
      const value =
        before?.from.every((each, at) => each === from[at]) === true
          ? before.value
          : this.#uploadedVersion(name, version, loaded, shipped);
      this.#made.set(loaded, { from, value });
      wanted.set(version, { value, sequence });
    }
    if (shipped !== undefined) {
      const { version, given: own } = shipped;
      if (wanted.has(version.version)) {
        this.#logger.warn({ function: version.key }, 'a folder function hides an upload of the same version');
      }
      const value = { ...version, settings: this.#settingsOf(name, version.version, own) };
      wanted.set(version.version, { value, sequence: folderSequence });
    }
    if (wanted.size === 0) this.overrides.delete(name);
    const override = this.overrides.get(name);
    for (const [version, { value: own, sequence }] of wanted) {
      const plain = override === undefined ? own : { ...own, settings: overridden(own.settings, override) };
      const rows = this.rowsOf(plain);
      const value = rows === undefined ? plain : { ...plain, rows };
      const known = this.find(name, version);
      if (known === value) continue;
      if (known === undefined || JSON.stringify(known) !== JSON.stringify(value)) this.set(value, sequence);
    }
    for (const { version } of this.versions(name)) {
      if (!wanted.has(version)) this.delete(name, version);
    }
    this.setTraffic(name, this.entries.get(name).traffic);
  }

  /** See {@link FunctionVersion.rows}. */
  protected rowsOf(_version: FunctionVersion): RowsState | undefined {
    return undefined;
  }

  /** The settings of a version of the registry, after a change of them. */
  protected settingsAfter({ name, version }: FunctionVersion, change: GivenSettings): FunctionVersion['settings'] {
    const [loaded, shipped] = [this.uploads.get(name)?.get(version), this.shipped.get(name)];
    if (shipped?.version.version === version) return this.#resolved(change, shipped.given);
    const record = loaded === undefined || loaded.status === 'unreadable' ? undefined : loaded.record;
    return this.#resolved(change, record?.settings ?? {}, record && shipped?.given);
  }

  /**
   * The registry's view of an upload. It takes its handler, and settings that it lacks, from a folder function of the
   * same name.
   */
  #uploadedVersion(
    name: string,
    version: string,
    loaded: LoadedRecord,
    shipped: FolderFunction | undefined,
  ): FunctionVersion {
    const record = loaded.status === 'unreadable' ? undefined : loaded.record;
    const lender = record && shipped;
    const files = record === undefined ? [] : modelFiles(record);
    const folder = this.#data.versionFolder(name, version);
    const handler: HandlerOutcome =
      record !== undefined && files.length < record.files.length
        ? { status: 'compiled', path: join(folder, handlerFile) }
        : (lender?.handler ?? { status: 'none' });
    return {
      name,
      version,
      key: `${name}@${version}`,
      source: 'upload',
      settings: this.#settingsOf(name, version, record?.settings ?? {}, lender?.given),
      modelPath: join(folder, uploadedModel),
      modelSha256: files[0]?.sha256 ?? '',
      modelBytes: files.reduce((total, { bytes }) => total + bytes, 0),
      ...given({ chunks: record?.chunks }),
      handlerPath: handler.status === 'compiled' ? handler.path : undefined,
      publishedAtMs: record?.publishedAtMs ?? 0,
      metadata: record?.metadata,
      state: stateOf(loaded, handler),
    };
  }

  /** The published settings with later changes. */
  #settingsOf(
    name: string,
    version: string,
    published: GivenSettings,
    base?: GivenSettings,
  ): FunctionVersion['settings'] {
    return this.#resolved(this.entries.get(name).settings[version] ?? {}, published, base);
  }

  #resolved(change: GivenSettings, published: GivenSettings, base?: GivenSettings): FunctionVersion['settings'] {
    return resolveSettings(inheritSettings(change, published), this.#defaults, base);
  }

  logProblem(name: string): void {
    for (const { key, state } of this.versions(name)) {
      if (state.status === 'unavailable') {
        this.#logger.error({ function: key, reason: state.reason }, 'a function is unavailable');
      }
    }
  }

  /** @throws HostError 'folder-function' */
  mustNotBeShipped(name: string, version: string): void {
    if (this.shipped.get(name)?.version.version !== version) return;
    throw new HostError(
      'folder-function',
      `version '${version}' of function '${name}' ships in the functions folder and can only be changed there`,
    );
  }

  /** The settings as given, with later changes: of the wanted version if it exists, else of the serving one. */
  settingsBefore(name: string, wanted: string | undefined): GivenSettings {
    const uploads = this.uploads.get(name);
    const version = wanted !== undefined && uploads?.has(wanted) === true ? wanted : this.find(name)?.version;
    if (version === undefined) return {};
    const before = uploads?.get(version);
    const published = before === undefined || before.status === 'unreadable' ? {} : before.record.settings;
    return inheritSettings(this.entries.get(name).settings[version] ?? {}, published);
  }
}

function stateOf(loaded: LoadedRecord, handler: HandlerOutcome): VersionState {
  switch (loaded.status) {
    case 'damaged':
    case 'unreadable':
      return { status: 'unavailable', reason: loaded.reason };
    case 'whole':
    case 'unverified':
    case 'elsewhere':
      if (handler.status === 'broken') return { status: 'unavailable', reason: handler.reason };
      if (loaded.status === 'elsewhere') return { status: 'elsewhere' };
      return { status: loaded.status === 'whole' ? 'ready' : 'validating' };
  }
}
