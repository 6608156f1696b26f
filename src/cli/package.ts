import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder that the package lies in. */
const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** Turntable's own version. */
export function packageVersion(): string {
  return versionIn(join(root, 'package.json')) ?? 'unknown';
}

/** The version of an installed dependency; undefined when it is not installed. Does not load it. */
export function dependencyVersion(name: string): string | undefined {
  // The folders that Node itself would look in, from here up: a project that depends on Turntable holds them higher.
  for (let folder = root; ; folder = dirname(folder)) {
    const version = versionIn(join(folder, 'node_modules', name, 'package.json'));
    if (version !== undefined || folder === dirname(folder)) return version;
  }
}

function versionIn(file: string): string | undefined {
  try {
    const { version } = JSON.parse(readFileSync(file, 'utf8')) as { version?: unknown };
    return typeof version === 'string' ? version : undefined;
  } catch {
    return undefined;
  }
}
