/** The default location of the data folder. */
import { homedir } from 'node:os';
import { isAbsolute, join, sep } from 'node:path';

/**
 * In a checkout: `turntable-data` in its root. For an installed package: never inside the package, which an upgrade
 * replaces, but the user's data folder (XDG Base Directory Specification: `$XDG_DATA_HOME`, else `~/.local/share`).
 */
export function defaultDataDir(
  packageRoot: string,
  environment: Readonly<Record<string, string | undefined>>,
  home: string = homedir(),
): string {
  if (!packageRoot.split(sep).includes('node_modules')) return join(packageRoot, 'turntable-data');
  const given = environment['XDG_DATA_HOME'];
  // The specification says to ignore relative paths.
  const base = given !== undefined && isAbsolute(given) ? given : join(home, '.local', 'share');
  return join(base, 'turntable');
}

/** Versions before 0.2 kept the data here, inside the package. */
export const formerDataDir = (packageRoot: string): string => join(packageRoot, 'data');
