/**
 * The format of a data folder, in `store.json`. A host reads the formats up to its own: it migrates an older one at
 * start, after a copy of the records, and refuses a newer one before it changes anything.
 */
import { cp, rename, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { encodeName, FolderStore, type EntryBody } from '../../store/index.ts';
import { hasCode, ifThere, jsonAs, namesInFolder, readTextIfThere, unlinkIfThere } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { fileBytes, replaceFile } from './disk.ts';
import { isFunctionName, isVersion } from './names.ts';
import { checkedRecord, type VersionRecord } from './version-record.ts';

/** From the format of its index to the next one. Must be repeatable: after a kill it runs again. */
export type Migration = (root: string) => Promise<void>;

const migrations: readonly Migration[] = [
  // 0 to 1: folders without `store.json`, from versions before 0.2. Nothing moves inside them.
  async () => undefined,
  toEntries,
];

/** 1 to 2: `version.json` in each version's folder and `serving/<name>.json` become an entry in the store. */
async function toEntries(root: string): Promise<void> {
  const store = new FolderStore(root);
  const functions = join(root, 'functions');
  const serving = await namesInFolder(join(root, 'serving'));
  const names = [...(await namesInFolder(functions)), ...serving.map((file) => file.replace(/\.json$/, ''))];
  for (const name of new Set(names.filter(isFunctionName))) {
    const versions = (await namesInFolder(join(functions, name))).filter(isVersion);
    // Else this was killed after it had written the entry.
    if ((await store.read(name)) === undefined) {
      const entry = await entryOf(root, name, versions);
      if (entry !== undefined) await store.write(name, entry, undefined);
    }
    for (const version of versions) {
      await unlinkIfThere(join(functions, name, version, 'version.json'));
      await rename(join(functions, name, version), join(functions, name, encodeName(version)));
    }
    if (versions.length > 0) await rename(join(functions, name), join(functions, encodeName(name)));
    await unlinkIfThere(join(root, 'serving', `${name}.json`));
  }
  await ifThere(rmdir(join(root, 'serving'))).catch(() => undefined); // Not empty: what is in it is no record.
}

async function entryOf(root: string, name: string, versions: readonly string[]): Promise<EntryBody | undefined> {
  const records: VersionRecord[] = [];
  const unreadable: string[] = [];
  for (const version of versions) {
    const text = await readTextIfThere(join(root, 'functions', name, version, 'version.json'));
    const record = jsonAs(text, checkedRecord);
    if (record?.name === name && record.version === version) records.push(record);
    else unreadable.push(version);
  }
  const text = await readTextIfThere(join(root, 'serving', `${name}.json`));
  const changed = jsonAs(text, (value: EntryBody) => (value.format === 1 ? value : undefined));
  if (versions.length === 0 && changed === undefined) return undefined;
  return { versions: records, settings: changed?.settings ?? {}, traffic: changed?.traffic, unreadable };
}

export interface FormatOutcome {
  readonly from: number;
  readonly to: number;
  /** Folder with the former records; undefined if nothing was migrated. */
  readonly backup: string | undefined;
}

/**
 * Brings a data folder to the newest format. The caller holds its lock.
 *
 * @throws ConfigError if the folder is of a newer format, or its `store.json` is invalid
 */
export async function migrateData(root: string, steps: readonly Migration[] = migrations): Promise<FormatOutcome> {
  const newest = steps.length;
  const found = await formatOf(root);
  const from = found ?? newest;
  if (from > newest) {
    throw new ConfigError(
      `the data folder ${root} has format ${from}, and this version of Turntable reads formats up to ${newest}; ` +
        'install the newer version again, or choose another folder with --data',
    );
  }
  const noted = async (): Promise<void> =>
    await replaceFile(join(root, 'store.json'), `${JSON.stringify({ format: newest })}\n`);
  if (found === undefined) await noted();
  if (from === newest) return { from, to: newest, backup: undefined };
  const backup = await backUp(root, from);
  for (let format = from; format < newest; format++) await steps[format]?.(root);
  await noted();
  return { from, to: newest, backup };
}

/** Undefined for an empty folder. @throws ConfigError for an invalid `store.json` */
export async function formatOf(root: string): Promise<number | undefined> {
  const path = join(root, 'store.json');
  const text = await readTextIfThere(path);
  if (text === undefined) return (await namesInFolder(join(root, 'functions'))).length > 0 ? 0 : undefined;
  const format = jsonAs(text, (value: { readonly format?: unknown }) => value)?.format;
  if (typeof format === 'number' && Number.isSafeInteger(format) && format >= 0) return format;
  throw new ConfigError(`${path} is damaged: it must be {"format": N}; if you know the format, write it there`);
}

/** Copies every record. The models beside them never change, and copies would double the disk. */
async function backUp(root: string, format: number): Promise<string> {
  const backup = join(root, `backup-format-${format}`);
  const records = (await namesInFolder(join(root, 'serving'))).map((file) => join('serving', file));
  for (const name of await namesInFolder(join(root, 'functions'))) {
    for (const version of await namesInFolder(join(root, 'functions', name))) {
      records.push(join('functions', name, version, 'version.json'));
    }
  }
  for (const record of records) {
    if ((await fileBytes(join(root, record))) === undefined) continue;
    try {
      await cp(join(root, record), join(backup, record), { errorOnExist: true, force: false });
    } catch (error) {
      // A killed try has made a copy: that older copy is the right one.
      if (!hasCode(error, 'ERR_FS_CP_EEXIST')) throw error;
    }
  }
  return backup;
}

export const newestFormat = migrations.length;
