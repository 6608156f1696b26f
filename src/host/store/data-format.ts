/**
 * The format of a data folder, in `store.json`. A host reads the formats up to its own: it migrates an older one at
 * start, after a copy of the records, and refuses a newer one before it changes anything.
 */
import { cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { fileBytes, hasCode, namesIn, readTextIfThere, replaceFile } from './disk.ts';
import { versionFile } from './names.ts';

/** From the format of its index to the next one. Must be repeatable: after a kill it runs again. */
export type Migration = (root: string) => Promise<void>;

/**
 * 0 to 1: folders without `store.json`, from versions before 0.2. Nothing moves inside them; from now on they state
 * their format.
 */
const migrations: readonly Migration[] = [async () => undefined];

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
  const from = await formatOf(root, newest);
  if (from > newest) {
    throw new ConfigError(
      `the data folder ${root} has format ${from}, and this version of Turntable reads formats up to ${newest}; ` +
        'install the newer version again, or choose another folder with --data',
    );
  }
  if (from === newest) return { from, to: newest, backup: undefined };
  const backup = await backUp(root, from);
  for (let format = from; format < newest; format++) await steps[format]?.(root);
  await replaceFile(join(root, 'store.json'), `${JSON.stringify({ format: newest })}\n`);
  return { from, to: newest, backup };
}

/** An empty folder is of the newest format. */
async function formatOf(root: string, newest: number): Promise<number> {
  const path = join(root, 'store.json');
  const text = await readTextIfThere(path);
  if (text === undefined) {
    if ((await namesIn(join(root, 'functions'))).length > 0) return 0;
    await replaceFile(path, `${JSON.stringify({ format: newest })}\n`);
    return newest;
  }
  const format = jsonAs(text, (value: { readonly format?: unknown }) => value)?.format;
  if (typeof format === 'number' && Number.isSafeInteger(format) && format >= 0) return format;
  throw new ConfigError(`${path} is damaged: it must be {"format": N}; if you know the format, write it there`);
}

/** Copies every record. The models beside them never change, and copies would double the disk. */
async function backUp(root: string, format: number): Promise<string> {
  const backup = join(root, `backup-format-${format}`);
  for (const name of await namesIn(join(root, 'functions'))) {
    for (const version of await namesIn(join(root, 'functions', name))) {
      const record = join('functions', name, version, versionFile);
      if ((await fileBytes(join(root, record))) === undefined) continue;
      await mkdir(join(backup, 'functions', name, version), { recursive: true });
      try {
        await cp(join(root, record), join(backup, record), { errorOnExist: true, force: false });
      } catch (error) {
        // A killed try has made a copy: that older copy is the right one.
        if (!hasCode(error, 'ERR_FS_CP_EEXIST')) throw error;
      }
    }
  }
  return backup;
}
