// Compiles src/ to dist/, where the child processes (instances, validator) and `npx turntable` find their JavaScript,
// and puts the project's own command beside those of its dependencies, since npx looks only there.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { join, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildPage } from './build-page.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');

if (!existsSync(tsc)) {
  if (existsSync(join(root, 'dist', 'cli', 'main.js'))) process.exit(0); // `npm ci --omit=dev` beside a built dist/
  console.error('dist/ is not built and TypeScript is not installed: run `npm ci` without --omit=dev');
  process.exit(1);
}
// What is left of a deleted source file would still be found by an import.
const outputs = existsSync(join(root, 'dist'))
  ? readdirSync(join(root, 'dist'), { recursive: true, encoding: 'utf8' })
  : [];
for (const output of outputs) {
  const source = output.replace(/(\.d\.ts|\.js\.map|\.js)$/, '.ts');
  if (source !== output && !existsSync(join(root, 'src', source))) rmSync(join(root, 'dist', output), { force: true });
}
// Kernels are read at run time, and found beside the code that compiles them.
const kernels = join('gpu', 'kernels');
for (const file of existsSync(join(root, 'src', kernels)) ? readdirSync(join(root, 'src', kernels)) : []) {
  if (!file.endsWith('.cu')) continue;
  const [from, to] = [join(root, 'src', kernels, file), join(root, 'dist', kernels, file)];
  // Left alone where it is the same: a process that runs from dist/ may be reading it.
  if (existsSync(to) && readFileSync(from).equals(readFileSync(to))) continue;
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, `${to}.${process.pid}`);
  renameSync(`${to}.${process.pid}`, to);
}

// After the cleaning, which takes the bundle for what is left of a source file.
buildPage(root);

const compiled = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { cwd: root, stdio: 'inherit' });
if (compiled.status !== 0) process.exit(compiled.status ?? 1);

const link = join(root, 'node_modules', '.bin', 'turntable');
mkdirSync(dirname(link), { recursive: true });
if (!lstatSync(link, { throwIfNoEntry: false })?.isSymbolicLink()) {
  rmSync(link, { force: true });
  symlinkSync(join('..', '..', 'bin', 'turntable.js'), link);
}
