/** Runs once before a project's tests: prints the seed, and rebuilds dist/ if it is older than src/. */
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';

const root = join(import.meta.dirname, '..');

export default function setup(project: TestProject): void {
  const seed = project.config.env['TURNTABLE_SEED'] ?? 'unknown';
  console.log(`seed ${seed}, with TURNTABLE_SEED=${seed} the properties run the same again`);
  if (process.env['TURNTABLE_TEST_UNIT'] === '1' || isFresh()) return;
  // Child processes (instances, the validator, the command) run from dist/: an old one would test yesterday's code.
  const built = spawnSync(process.execPath, [join(root, 'scripts', 'build.mjs')], { encoding: 'utf8' });
  if (built.status === 0) return;
  console.warn(`dist/ was built with errors:\n${built.stdout}${built.stderr}`);
  // While files are watched, the next change may mend it. Vitest cannot print an error of this file.
  if (!project.vitest.config.watch) process.exit(1);
}

const timeOf = (...path: string[]): number => statSync(join(root, ...path), { throwIfNoEntry: false })?.mtimeMs ?? 0;

/**
 * Whether the inputs of dist/ are older than the last successful build, which sets the time of index.js to its start.
 */
function isFresh(): boolean {
  const builtAt = timeOf('dist', 'index.js');
  return ['scripts', 'src', 'wrangler-free-config']
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name)),
    )
    .every((path) => path.endsWith('.test.ts') || timeOf(path) <= builtAt);
}
