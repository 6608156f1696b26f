// Builds dist/ from src/: JavaScript in few files (bundle.mjs), the types of what the package exports, the dashboard's
// page, the checks of schemas, kernels and protos. The command and its child processes (instances, validator) run from
// there. With --if-stale it builds only if a source is newer than dist/: npm runs `prepare` also where nothing changed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, 'dist');
const builtAt = new Date();
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');

const timeOf = (path) => statSync(join(root, path), { throwIfNoEntry: false })?.mtimeMs ?? 0;

/** Whether the inputs of dist/ are older than the last good build, which sets the time of index.js to its start. */
function isFresh() {
  const lastBuiltAt = timeOf(join('dist', 'index.js'));
  return ['scripts', 'src', 'wrangler-free-config']
    .flatMap((folder) => readdirSync(join(root, folder), { recursive: true }).map((name) => join(folder, name)))
    .concat('package-lock.json')
    .every((path) => path.endsWith('.test.ts') || timeOf(path) <= lastBuiltAt);
}

if (process.argv.includes('--if-stale') && isFresh()) process.exit(0);
if (!existsSync(tsc)) {
  if (existsSync(join(dist, 'cli', 'main.js'))) process.exit(0); // `npm ci --omit=dev` beside a built dist/
  console.error('dist/ is not built and TypeScript is not installed: run `npm ci` without --omit=dev');
  process.exit(1);
}
const [{ buildPage }, { bundle, chunks }, { writeSchemaChecks }] = await Promise.all([
  import('./build-page.mjs'),
  import('./bundle.mjs'),
  import('./schema-checks.mjs'),
]);

const filesIn = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(folder.length + 1));

/** Moves the built files into dist/. Only files that differ change: a running process may be reading them. */
function putInPlace(built) {
  const files = filesIn(built);
  // A process that starts meanwhile must find all its imports: shared code is moved first.
  files.sort((a, b) => Number(b.startsWith(chunks)) - Number(a.startsWith(chunks)));
  for (const file of files) {
    const [from, to] = [join(built, file), join(dist, file)];
    if (existsSync(to) && readFileSync(from).equals(readFileSync(to))) continue;
    mkdirSync(dirname(to), { recursive: true });
    renameSync(from, to);
  }
  // Otherwise imports would still find the output of a deleted source file.
  const made = new Set(files);
  for (const file of filesIn(dist)) if (!made.has(file)) rmSync(join(dist, file), { force: true });
}

// Built beside dist/ first: a running host starts its processes from there, and one that read half a file would exit.
const beside = join(root, `dist.${process.pid}`);
try {
  const types = spawn(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--outDir', beside], {
    cwd: root,
    stdio: 'inherit',
  });
  const typed = once(types, 'exit');
  await bundle(root, beside);
  await buildPage(root, beside);
  await writeSchemaChecks(root, beside);
  // Kernels and protos are read at run time, and found beside the code that uses them.
  for (const file of filesIn(join(root, 'src')).filter((name) => /\.(cu|proto)$/.test(name))) {
    cpSync(join(root, 'src', file), join(beside, file));
  }
  const [status] = await typed;
  // Type errors must not stop tests of code that runs; `npm run types` reports them.
  putInPlace(beside);
  if (status !== 0) process.exitCode = status ?? 1;
} finally {
  rmSync(beside, { recursive: true, force: true });
}

// Last: every source is older than dist/ then.
if (process.exitCode === undefined) utimesSync(join(dist, 'index.js'), builtAt, builtAt);
