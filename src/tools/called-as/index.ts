/** How this command was called, so that the commands that it tells a user to run next work in the same shell. */
import { accessSync, constants, realpathSync } from 'node:fs';
import { basename, delimiter, isAbsolute, join, relative } from 'node:path';
import { quoted } from '../quoted.ts';

/**
 * The words for `turntable`: itself where the shell finds it, else the path that it was called by, such as
 * `node bin/turntable.js`. Never npx: it may build the project again, or fetch a stranger's package of this name.
 */
export function calledAs(
  script = process.argv[1],
  path = process.env['PATH'],
  folder = process.cwd(),
  nodeFlags: readonly string[] = process.execArgv,
): string {
  const name = basename(script ?? '');
  // A child process, or a test.
  if (script === undefined || (name !== 'turntable' && name !== 'turntable.js')) return 'turntable';
  if (isOnPath(script, path ?? '')) return 'turntable';
  const below = relative(folder, script);
  const shortest = below.startsWith('..') || isAbsolute(below) ? script : below;
  // A shell looks for a word without a slash on its path.
  const shown = shortest === name ? `./${name}` : shortest;
  // The script's own first line gives Node a flag.
  return name === 'turntable' || nodeFlags.length > 0 ? quoted(shown) : `node ${quoted(shown)}`;
}

/** Puts these words in the place of `turntable` before a command or an option. */
export const asCalled = (text: string): string =>
  text.replaceAll(/(?<![\w./-])turntable(?=\s+[a-z[<-])/g, () => calledAs());

/** Whether a shell finds this script; npm puts folders of its own before the path while it runs one. */
function isOnPath(script: string, path: string): boolean {
  for (const folder of path.split(delimiter).filter((each) => basename(each) !== '.bin')) {
    const found = join(folder, 'turntable');
    try {
      accessSync(found, constants.X_OK);
      return realpathSync(found) === realpathSync(script);
    } catch {
      // Not in this folder.
    }
  }
  return false;
}
