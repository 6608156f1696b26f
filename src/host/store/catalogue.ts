/**
 * What the host knows of every function: published versions, the folder's own, and what was set for them since. Whenever one of
 * these changes, the registry's versions of that name are brought up to them.
 */
import { HostError } from '../errors.ts';
import type { FunctionVersion, SettingsOverride } from '../types.ts';
import type { DataFolder } from './data-folder.ts';
import type { FolderFunction } from './folder-functions.ts';
import { FunctionTable } from './function-table.ts';
import { ServingRecords } from './serving.ts';
import { inheritSettings, overridden, withChange, type GivenSettings } from './settings.ts';
import type { ModelStoreOptions, StoreLogger } from './types.ts';
import { unreadableVersion, uploadedVersion, type LoadedRecord } from './version-record.ts';

/** Any upload is current over the folder's version, except one of which not even the order is known. */
const folderSequence = -1;
const unreadableSequence = -2;

export class Catalogue extends FunctionTable {
  /** Every published version by name and version, also those that a folder's version hides. */
  readonly uploads = new Map<string, Map<string, LoadedRecord>>();
  readonly shipped = new Map<string, FolderFunction>();
  /** What the latest load of a function has brought; kept in memory only, as Triton does. */
  readonly overrides = new Map<string, SettingsOverride>();
  readonly serving: ServingRecords;
  readonly #data: DataFolder;
  readonly #defaults: ModelStoreOptions['defaults'];
  readonly #logger: StoreLogger;

  constructor(data: DataFolder, { defaults, logger }: Pick<ModelStoreOptions, 'defaults' | 'logger'>) {
    super(logger);
    this.#data = data;
    this.#defaults = defaults;
    this.#logger = logger;
    this.serving = new ServingRecords(data.serving, logger);
  }

  uploadsOf(name: string): Map<string, LoadedRecord> {
    let uploads = this.uploads.get(name);
    if (uploads === undefined) {
      uploads = new Map();
      this.uploads.set(name, uploads);
    }
    return uploads;
  }

  /** Brings the registry's versions of one name up to what the folder and the disk say. */
  refresh(name: string): void {
    const defaults = this.#defaults;
    const shipped = this.shipped.get(name);
    const wanted = new Map<string, { value: FunctionVersion; sequence: number }>();
    for (const [version, loaded] of this.uploads.get(name) ?? []) {
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
        this.#logger.warn({ function: version.key }, 'a folder function hides an upload of the same version');
      }
      wanted.set(version.version, { value: version, sequence: folderSequence });
    }
    if (wanted.size === 0) this.overrides.delete(name);
    const override = this.overrides.get(name);
    const changes = this.serving.get(name).settings;
    for (const [version, { value: published, sequence }] of wanted) {
      const change = changes[version];
      const own = change === undefined ? published : { ...published, settings: withChange(published.settings, change) };
      const value = override === undefined ? own : { ...own, settings: overridden(own.settings, override) };
      const known = this.find(name, version);
      if (known === undefined || JSON.stringify(known) !== JSON.stringify(value)) this.set(value, sequence);
    }
    for (const { version } of this.versions(name)) {
      if (!wanted.has(version)) this.delete(name, version);
    }
    this.setTraffic(name, this.serving.get(name).traffic);
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

  /** As they were given and changed since: of the wanted version where it exists, else of the one that serves. */
  settingsBefore(name: string, wanted: string | undefined): GivenSettings {
    const uploads = this.uploads.get(name);
    const version = wanted !== undefined && uploads?.has(wanted) === true ? wanted : this.find(name)?.version;
    if (version === undefined) return {};
    const before = uploads?.get(version);
    const published = before === undefined || before.status === 'unreadable' ? {} : before.record.settings;
    return inheritSettings(this.serving.get(name).settings[version] ?? {}, published);
  }
}
