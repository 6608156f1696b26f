/**
 * Runs once before a project's tests: tells the seed, and sees to it that dist/ is what src/ says where processes need
 * it.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join, sep } from 'node:path';
import type { TestProject } from 'vitest/node';

const root = join(import.meta.dirname, '..');

export default function setup(project: TestProject): void {
  const seed = project.config.env['TURNTABLE_SEED'] ?? 'unknown';
  console.log(`seed ${seed}, with TURNTABLE_SEED=${seed} the properties run the same again`);
  if (project.name === 'unit' || isFresh()) return;
  // Child processes (instances, the validator, the command) run from dist/: an old one would test yesterday's code.
  const built = spawnSync(process.execPath, [join(root, 'scripts', 'build.mjs')], { encoding: 'utf8' });
  // Type errors do not stop tsc from writing; `npm run types` is what they fail.
  if (built.status !== 0) console.warn(`dist/ was built with errors:\n${built.stdout}${built.stderr}`);
}

const page = join('host', 'dashboard', 'page');
const script = join(page, 'page.js');

/** Whether every source file is older than what was made of it, and nothing is left of deleted ones. */
function isFresh(): boolean {
  const timeOf = (...path: string[]): number => statSync(join(root, ...path), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const made = new Set<string>();
  for (const source of readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })) {
    const isOfPage = source.startsWith(page + sep);
    if (source.endsWith('.test.ts') || !(isOfPage || /\.(ts|cu|proto)$/.test(source))) continue;
    const output = isOfPage ? script : source.replace(/\.ts$/, '.js');
    made.add(output);
    if (timeOf('src', source) > timeOf('dist', output)) return false;
  }
  const outputs = readdirSync(join(root, 'dist'), { recursive: true, encoding: 'utf8' });
  return outputs.every((output) => !output.endsWith('.js') || made.has(output));
}
