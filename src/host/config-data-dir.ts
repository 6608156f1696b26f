/** Where the data folder is when nobody says. */
import { homedir } from 'node:os';
import { isAbsolute, join, sep } from 'node:path';

/**
 * In a checkout `turntable-data` in its root. Of an installed package never inside the package, which an upgrade
 * replaces: the user's data folder (XDG Base Directory Specification: `$XDG_DATA_HOME`, else `~/.local/share`).
 */
export function defaultDataDir(
  packageRoot: string,
  environment: Readonly<Record<string, string | undefined>>,
  home: string = homedir(),
): string {
  if (!packageRoot.split(sep).includes('node_modules')) return join(packageRoot, 'turntable-data');
  const given = environment['XDG_DATA_HOME'];
  // The specification has relative paths ignored.
  const base = given !== undefined && isAbsolute(given) ? given : join(home, '.local', 'share');
  return join(base, 'turntable');
}

/** Where versions before 0.2 kept it: inside the package. */
export const formerDataDir = (packageRoot: string): string => join(packageRoot, 'data');
