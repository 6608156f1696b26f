/** A folder with made-up files of /proc and /sys. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';

/** Each test of the file that calls this gets an empty one. */
export function madeUpRoot() {
  const made = {
    path: '',
    /** By the path below it. */
    write: (files: Readonly<Record<string, string>>): void => {
      for (const [path, text] of Object.entries(files)) {
        mkdirSync(dirname(join(made.path, path)), { recursive: true });
        writeFileSync(join(made.path, path), text);
      }
    },
  };
  beforeEach(() => {
    made.path = mkdtempSync(join(tmpdir(), 'turntable-root-'));
  });
  afterEach(() => {
    rmSync(made.path, { recursive: true, force: true });
  });
  return made;
}
