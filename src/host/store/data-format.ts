/** The format of a data folder, in `store.json`. A host refuses another than its own before it changes anything. */
import { join } from 'node:path';
import { jsonAs } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { namesIn, readTextIfThere } from './disk.ts';

export const dataFormat = 2;

/**
 * Undefined for an empty folder; 0 and 1 are those of release 0.1.
 *
 * @throws ConfigError if it is newer, or `store.json` is invalid
 */
export async function formatOf(root: string): Promise<number | undefined> {
  const path = join(root, 'store.json');
  const text = await readTextIfThere(path);
  if (text === undefined) return (await namesIn(join(root, 'functions'))).length > 0 ? 0 : undefined;
  const format = jsonAs(text, (value: { readonly format?: unknown }) => value)?.format;
  if (typeof format !== 'number' || !Number.isSafeInteger(format) || format < 0) {
    throw new ConfigError(`${path} is damaged: it must be {"format": N}; if you know the format, write it there`);
  }
  if (format > dataFormat) {
    throw new ConfigError(
      `the data folder ${root} has format ${format}, and this version of Turntable reads formats up to ${dataFormat}; ` +
        'install the newer version again, or choose another folder with --data',
    );
  }
  return format;
}

/** Whether it has a format yet. @throws ConfigError if that is another than this version's, with what to do */
export async function hasFormat(root: string): Promise<boolean> {
  const format = await formatOf(root);
  if (format === undefined || format === dataFormat) return format !== undefined;
  throw new ConfigError(
    `the data folder ${root} is of release 0.1: bring its functions into a new folder (turntable store import ${root} ` +
      '--store NEW), and use that one (--data NEW)',
  );
}
