/** Word lists of Debian's packages, as /usr/share/dict has them: one word a line. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = '/usr/share/dict';

export interface WordList {
  /** File name in /usr/share/dict. */
  readonly file: string;
  /** The Debian package that brings it. */
  readonly package: string;
  readonly encoding?: 'utf8' | 'latin1';
}

/** Ends the process with the command that installs what is missing, naming every missing list at once. */
export function requireWordLists(lists: readonly WordList[]): void {
  const missing = lists.filter(({ file }) => !existsSync(join(folder, file)));
  if (missing.length === 0) return;
  console.error(`missing in ${folder}: ${missing.map(({ file }) => file).join(', ')}`);
  console.error(`install them with: apt-get install ${missing.map((list) => list.package).join(' ')}`);
  process.exit(1);
}

/** The words of a list in Unicode's composed form, in the order of the file. */
export function readWordList({ file, encoding = 'utf8' }: WordList): string[] {
  return readFileSync(join(folder, file), encoding)
    .normalize('NFC')
    .split('\n')
    .filter((word) => word.length > 0);
}
