/**
 * What the fleet's registry says, brought into this host's store: versions that other hosts published appear here by their records,
 * and get their content when this host is to have it.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { withoutVersion, type Traffic } from '../traffic.ts';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { discardTree, unlinkIfThere } from './disk.ts';
import type { Publishing } from './publishing.ts';
import type { Removals } from './removals.ts';
import type { ServingRecord } from './serving.ts';
import type { GivenSettings } from './settings.ts';
import { sameFiles } from './uploaded-files.ts';
import { reviveMetadata } from './validation.ts';
import type { StoredFile, VersionRecord } from './version-record.ts';

/** A function as the registry has it. */
export interface FleetFunction {
  readonly versions: readonly VersionRecord[];
  readonly serving?: {
    readonly settings: Readonly<Record<string, GivenSettings>>;
    readonly traffic?: Traffic | undefined;
  };
}

/** Where this host's store stands in a fleet. */
export interface FleetStore {
  /** Reads this host's copy of the registry; before everything else. @param folder for the fleet's own files */
  load(folder: string): Promise<void>;
  /** Functions that the fleet has or had, as this host's copy of the registry says. */
  names(): readonly string[];
  get(name: string): FleetFunction | undefined;
  /** Before a change. @throws HostError 'fleet-unavailable' */
  ready(): Promise<void>;
  /** Resolves when another host has these files as well, or there is none. @throws HostError 'fleet-unavailable' */
  secure(name: string, files: readonly StoredFile[]): Promise<void>;
  /** Changes the registry; undefined removes the function. @throws ChangedElsewhere, HostError 'fleet-unavailable' */
  commit(name: string, next: FleetFunction | undefined): Promise<void>;
  /** Takes in what others have changed. */
  sync(): Promise<void>;
  /** A caller waits for a version whose content is at other hosts. */
  want(name: string, version: string): void;
}

/** Writes a file of a function to a path. */
export type FetchFile = (file: StoredFile, path: string) => Promise<void>;

export interface FleetContentOptions {
  readonly catalogue: Pick<Catalogue, 'uploadsOf' | 'serving'>;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly removals: Pick<Removals, 'discard' | 'releaseBlobs'>;
  readonly publishing: Pick<Publishing, 'switchOver'>;
}

export class FleetContent {
  readonly #options: FleetContentOptions;

  constructor(options: FleetContentOptions) {
    this.#options = options;
  }

  /** Makes the store's versions of a function those of the registry. Under the function's lock. */
  async adopt(name: string, wanted: FleetFunction | undefined): Promise<void> {
    const { catalogue, data, removals } = this.#options;
    const uploads = catalogue.uploadsOf(name);
    const records = new Map(wanted?.versions.map((record) => [record.version, record]));
    for (const [version, loaded] of uploads) {
      const record = records.get(version);
      const isSame =
        record !== undefined && loaded.status !== 'unreadable' && sameFiles(loaded.record.files, record.files);
      if (isSame && loaded.status !== 'elsewhere') records.delete(version);
      if (isSame) continue;
      if (loaded.status === 'elsewhere') uploads.delete(version);
      else {
        await removals.discard(data.versionFolder(name, version), () => uploads.delete(version));
        await removals.releaseBlobs(loaded);
      }
    }
    for (const [version, record] of records) {
      uploads.set(version, { status: 'elsewhere', record: { ...record, metadata: reviveMetadata(record.metadata) } });
    }
    await this.#adoptServing(name, wanted);
  }

  /**
   * Puts the content of a version in its place; its files are among the blobs. Under the function's lock. Resolves to false where the
   * version is another one by now, or has its content.
   */
  async settle(record: VersionRecord): Promise<boolean> {
    const { catalogue, data, blobs, publishing } = this.#options;
    const { name, version, files } = record;
    const uploads = catalogue.uploadsOf(name);
    const loaded = uploads.get(version);
    if (loaded?.status !== 'elsewhere' || !sameFiles(loaded.record.files, files)) return false;
    const folder = data.stagingPath();
    await mkdir(folder);
    try {
      for (const file of files) await blobs.takeOut(file.sha256, join(folder, file.name));
      await publishing.switchOver(folder, loaded.record);
    } catch (error) {
      await discardTree(folder);
      throw error;
    }
    uploads.set(version, { status: 'whole', record: loaded.record });
    return true;
  }

  /** Gives the content of a version up. Under the function's lock. @param onElsewhere before its files are removed */
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

  /** Has a file among the blobs, kept for a day though no version refers to it. */
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

  async #adoptServing(name: string, wanted: FleetFunction | undefined): Promise<void> {
    const { serving } = this.#options.catalogue;
    const next: ServingRecord = { format: 1, settings: {}, ...wanted?.serving };
    if (JSON.stringify(asJson(serving.get(name))) !== JSON.stringify(asJson(next))) await serving.write(name, next);
  }
}

/** Of two states of a function that hosts have acknowledged without each other. Versions of one name: the fleet's stays. */
export function mergedFunctions(
  mine: FleetFunction | undefined,
  theirs: FleetFunction | undefined,
): FleetFunction | undefined {
  if (mine === undefined || theirs === undefined) return mine ?? theirs;
  const known = new Set(theirs.versions.map(({ version }) => version));
  const serving = theirs.serving ?? mine.serving;
  return {
    versions: [...theirs.versions, ...mine.versions.filter(({ version }) => !known.has(version))],
    ...(serving === undefined ? {} : { serving }),
  };
}

const asJson = ({ settings, traffic }: ServingRecord): unknown => [settings, traffic ?? null];

/** A function of the fleet with one version more; what was set for it is what `serving` says. */
export function withRecord(
  before: FleetFunction | undefined,
  record: VersionRecord,
  { settings, traffic }: ServingRecord,
): FleetFunction {
  const others = before?.versions.filter(({ version }) => version !== record.version) ?? [];
  return { versions: [...others, record], serving: { settings, traffic } };
}

/** Without a version, or without any; undefined where nothing is left. */
export function withoutRecord(
  before: FleetFunction | undefined,
  version: string | undefined,
): FleetFunction | undefined {
  const versions = before?.versions.filter((record) => version !== undefined && record.version !== version) ?? [];
  if (before === undefined || versions.length === 0) return undefined;
  const { settings = {}, traffic } = before.serving ?? {};
  const { [version ?? '']: _gone, ...kept } = settings;
  const left = traffic && version !== undefined ? withoutVersion(traffic, version) : traffic;
  return { versions, serving: { settings: kept, traffic: left } };
}
