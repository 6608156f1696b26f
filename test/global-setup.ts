/** Runs once before a project's tests: prints the seed, and rebuilds dist/ if it is older than src/. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';

const root = join(import.meta.dirname, '..');

export default function setup(project: TestProject): void {
  const seed = project.config.env['TURNTABLE_SEED'] ?? 'unknown';
  console.log(`seed ${seed}, with TURNTABLE_SEED=${seed} the properties run the same again`);
  if (process.env['TURNTABLE_TEST_UNIT'] === '1') return;
  // Child processes (instances, the validator, the command) run from dist/: an old one would test yesterday's code.
  const built = spawnSync(process.execPath, [join(root, 'scripts', 'build.mjs'), '--if-stale'], { encoding: 'utf8' });
  if (built.status === 0) return;
  console.warn(`dist/ was built with errors:\n${built.stdout}${built.stderr}`);
  // While files are watched, the next change may mend it. Vitest cannot print an error of this file.
  if (!project.vitest.config.watch) process.exit(1);
}
