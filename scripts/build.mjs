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
  utimesSync,
} from 'node:fs';
import { join, dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildPage } from './build-page.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const builtAt = new Date();
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');

if (!existsSync(tsc)) {
  if (existsSync(join(root, 'dist', 'cli', 'main.js'))) process.exit(0); // `npm ci --omit=dev` beside a built dist/
  console.error('dist/ is not built and TypeScript is not installed: run `npm ci` without --omit=dev');
  process.exit(1);
}

/** Whether both have the same bytes. Then the second is as new as this build, which test/global-setup.ts looks for. */
function isUpToDate(from, to) {
  if (!existsSync(to) || !readFileSync(from).equals(readFileSync(to))) return false;
  utimesSync(to, builtAt, builtAt);
  return true;
}

// What is left of a deleted source file would still be found by an import.
const outputs = existsSync(join(root, 'dist'))
  ? readdirSync(join(root, 'dist'), { recursive: true, encoding: 'utf8' })
  : [];
for (const output of outputs) {
  const source = output.replace(/(\.d\.ts|\.js\.map|\.js)$/, '.ts');
  if (source !== output && !existsSync(join(root, 'src', source))) rmSync(join(root, 'dist', output), { force: true });
}
// Kernels and protos are read at run time, and found beside the code that uses them.
const readAtRunTime = [join('gpu', 'kernels'), join('host', 'grpc')].flatMap((folder) =>
  existsSync(join(root, 'src', folder)) ? readdirSync(join(root, 'src', folder)).map((file) => join(folder, file)) : [],
);
for (const file of readAtRunTime) {
  if (!file.endsWith('.cu') && !file.endsWith('.proto')) continue;
  const [from, to] = [join(root, 'src', file), join(root, 'dist', file)];
  // Left alone where it is the same: a process that runs from dist/ may be reading it.
  if (isUpToDate(from, to)) continue;
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, `${to}.${process.pid}`);
  renameSync(`${to}.${process.pid}`, to);
}

// After the cleaning, which takes the bundle for what is left of a source file.
buildPage(root);

// Beside dist/ first: a host that runs starts its processes from there, and one that read half a file would exit at once.
const beside = join(root, `dist.${process.pid}`);
const options = ['-p', 'tsconfig.build.json', '--outDir', beside];
const compiled = spawnSync(process.execPath, [tsc, ...options], { cwd: root, stdio: 'inherit' });
if (compiled.status === 0) {
  for (const entry of readdirSync(beside, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const from = join(entry.parentPath ?? entry.path, entry.name);
    const to = join(root, 'dist', relative(beside, from));
    if (isUpToDate(from, to)) continue;
    mkdirSync(dirname(to), { recursive: true });
    renameSync(from, to);
  }
}
rmSync(beside, { recursive: true, force: true });
if (compiled.status !== 0) process.exit(compiled.status ?? 1);

const link = join(root, 'node_modules', '.bin', 'turntable');
mkdirSync(dirname(link), { recursive: true });
if (!lstatSync(link, { throwIfNoEntry: false })?.isSymbolicLink()) {
  rmSync(link, { force: true });
  symlinkSync(join('..', '..', 'bin', 'turntable.js'), link);
}
