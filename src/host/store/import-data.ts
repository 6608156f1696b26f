/**
 * Brings the functions of data folders into a store: those of one host, or of the hosts of a fleet of release 0.1, each of
 * which may have what the others lack.
 */
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ChangedElsewhere, type Store } from '../../store/index.ts';
import { getOrMake, hashFile, jsonAs, type Log, namesInFolder, readTextIfThere } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { DataFolder } from './data-folder.ts';
import { Entries } from './entries.ts';
import { uploadedModel } from './names.ts';
import { sameFiles } from './uploaded-files.ts';
import { manifestOf, storedFiles, type FunctionEntry, type StoredFile, type VersionRecord } from './version-record.ts';

export interface ImportReport {
  /** `name@version` of what the store has now and did not have. */
  readonly imported: readonly string[];
  /** What it had already. */
  readonly known: readonly string[];
  /** `name@version: why` of what could not be imported. */
  readonly left: readonly string[];
}

interface Found {
  readonly record: VersionRecord;
  /** Where its files may be, by folder. */
  readonly folders: DataFolder[];
}

interface FoundFunction {
  readonly versions: Map<string, Found>;
  settings: FunctionEntry['settings'];
  traffic: FunctionEntry['traffic'];
}

/**
 * No host may use the folders meanwhile; a folder of an older format is brought to the newest one.
 *
 * @throws ConfigError for a folder that is none, or in use; StoreAway
 */
export async function importData(folders: readonly string[], store: Store, log: Log): Promise<ImportReport> {
  await store.probe();
  const opened: DataFolder[] = [];
  try {
    for (const each of folders) {
      const data = new DataFolder(each);
      if (!existsSync(data.functions)) throw new ConfigError(`${each} is no data folder: 'functions' is not in it`);
      await data.open();
      opened.push(data);
    }
    const found = new Map<string, FoundFunction>();
    for (const data of opened) await collect(data, found, log);
    await heedFleets(opened, found);
    const report = { imported: [] as string[], known: [] as string[], left: [] as string[] };
    const there = new Entries(store, log);
    for (const [name, each] of found) await importFunction(name, each, store, there, report);
    return report;
  } finally {
    for (const data of opened) await data.close();
  }
}

async function collect(data: DataFolder, found: Map<string, FoundFunction>, log: Log): Promise<void> {
  const entries = new Entries(data.store, log);
  await entries.start();
  for (const name of entries.names()) {
    const { versions, settings, traffic } = entries.get(name);
    const one = getOrMake(found, name, () => ({ versions: new Map(), settings: {}, traffic: undefined }));
    one.settings = { ...settings, ...one.settings };
    one.traffic ??= traffic;
    for (const record of versions) {
      const known = getOrMake(one.versions, record.version, () => ({ record, folders: [] }));
      // Hosts that were never one fleet may have two versions of one name; the first folder's counts.
      if (sameFiles(known.record.files, record.files)) known.folders.push(data);
    }
  }
}

/** What the hosts of a fleet of 0.1 had agreed on in Redis, as each last heard it; the newest word counts. */
async function heedFleets(opened: readonly DataFolder[], found: Map<string, FoundFunction>): Promise<void> {
  interface Copy {
    readonly revision: number;
    readonly body: {
      readonly versions: readonly VersionRecord[];
      readonly serving?: Pick<FunctionEntry, 'settings' | 'traffic'>;
    } | null;
  }
  const newest = new Map<string, Copy>();
  for (const { root } of opened) {
    for (const fleet of await namesInFolder(join(root, 'fleet'))) {
      for (const file of await namesInFolder(join(root, 'fleet', fleet))) {
        const text = await readTextIfThere(join(root, 'fleet', fleet, file));
        const copy = jsonAs(text, (value: Copy) => (Number.isSafeInteger(value.revision) ? value : undefined));
        const name = file.replace(/\.json$/, '');
        if (copy !== undefined && copy.revision > (newest.get(name)?.revision ?? -1)) newest.set(name, copy);
      }
    }
  }
  for (const [name, { body }] of newest) {
    const one = found.get(name);
    if (one === undefined) continue;
    const agreed = new Set(body?.versions.map(({ version }) => version));
    for (const version of one.versions.keys()) if (!agreed.has(version)) one.versions.delete(version);
    if (body?.serving !== undefined) ({ settings: one.settings, traffic: one.traffic } = body.serving);
    if (one.versions.size === 0) found.delete(name);
  }
}

async function importFunction(
  name: string,
  { versions, settings, traffic }: FoundFunction,
  store: Store,
  there: Entries,
  report: { readonly imported: string[]; readonly known: string[]; readonly left: string[] },
): Promise<void> {
  const whole: VersionRecord[] = [];
  for (const found of versions.values()) {
    const missing = await putFiles(found, store);
    if (missing === undefined) whole.push(found.record);
    else report.left.push(`${name}@${found.record.version}: no folder has its file '${missing.name}' undamaged`);
  }
  for (;;) {
    await there.read(name);
    const before = there.get(name);
    const fresh = whole.filter(({ version }) => before.versions.every((each) => each.version !== version));
    const next: FunctionEntry = {
      ...before,
      versions: inOrder([...before.versions, ...fresh]),
      settings: { ...settings, ...before.settings },
      traffic: before.versions.length === 0 ? traffic : before.traffic,
    };
    try {
      if (fresh.length > 0) await there.write(name, next);
    } catch (error) {
      if (error instanceof ChangedElsewhere) continue;
      throw error;
    }
    for (const record of whole) {
      const key = `${name}@${record.version}`;
      const known = before.versions.find(({ version }) => version === record.version);
      if (known === undefined) report.imported.push(key);
      else if (sameFiles(known.files, record.files)) report.known.push(key);
      else report.left.push(`${key}: the store has another model under this version`);
    }
    return;
  }
}

/** Numbers of different stores do not compare, but times do; the newest is current. */
function inOrder(records: readonly VersionRecord[]): VersionRecord[] {
  const sorted = records.toSorted((a, b) => a.publishedAtMs - b.publishedAtMs || a.sequence - b.sequence);
  const isSorted = sorted.every(({ sequence }, index) => index === 0 || sequence > sorted[index - 1]!.sequence);
  if (isSorted) return sorted;
  return sorted.map((record, index) => Object.assign({}, record, { sequence: index + 1 }));
}

/** @returns a file that no folder has undamaged */
async function putFiles({ record, folders }: Found, store: Store): Promise<StoredFile | undefined> {
  let stored = record.files;
  const manifest = manifestOf(record);
  if (manifest !== undefined) {
    const path = await soundPath(record, manifest, folders);
    if (path === undefined) return manifest;
    stored = storedFiles(record, await readFile(path, 'utf8'));
  }
  const ordered = stored.toSorted((a, b) => Number(a.name === uploadedModel) - Number(b.name === uploadedModel));
  for (const file of ordered) {
    const path = await soundPath(record, file, folders);
    if (path === undefined) return file;
    await store.put(file, path);
  }
  return undefined;
}

async function soundPath(
  { name, version }: VersionRecord,
  file: StoredFile,
  folders: readonly DataFolder[],
): Promise<string | undefined> {
  for (const data of folders) {
    const places = [join(data.versionFolder(name, version), file.name), join(data.blobs, 'sha256', file.sha256)];
    for (const path of places) {
      const found = await hashFile(path).catch(() => undefined);
      if (found?.sha256 === file.sha256) return path;
    }
  }
  return undefined;
}
