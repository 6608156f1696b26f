// Packs the tarball that `npm i -g` takes: `npm run package [-- FOLDER]`. ONNX Runtime is bundled for Linux as in its
// own tarball, without its install script. That script downloads CUDA libraries, which nothing here loads, from outside
// the npm registry, and fails the whole installation if it cannot.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const destination = resolve(process.argv[2] ?? '.');
const stage = mkdtempSync(join(tmpdir(), 'turntable-package-stage-'));
const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

try {
  // An installed package needs no scripts and no development dependencies, and may be published.
  const manifest = readJson(join(root, 'package.json'));
  for (const key of ['scripts', 'devDependencies', 'allowScripts', 'private']) delete manifest[key];
  for (const entry of ['README.md', 'LICENSE', ...manifest.files.filter((path) => !path.startsWith('!'))]) {
    // Leave out what was installed or made while trying examples.
    const filter = (from) => !/\/node_modules$|^examples\/[^/]+\/model\.onnx$/.test(relative(root, from));
    cpSync(join(root, entry), join(stage, entry), { recursive: true, filter });
  }
  const bundled = { ...manifest, os: ['linux'], bundleDependencies: ['onnxruntime-node'] };
  writeFileSync(join(stage, 'package.json'), JSON.stringify(bundled, null, 2));

  for (const name of ['onnxruntime-node', 'onnxruntime-common']) {
    cpSync(join(root, 'node_modules', name), join(stage, 'node_modules', name), {
      recursive: true,
      filter: (from) => !/onnxruntime-node\/(script|bin\/napi-v6\/(darwin|win32))$/.test(from),
    });
  }
  const runtimePath = join(stage, 'node_modules', 'onnxruntime-node', 'package.json');
  const runtime = readJson(runtimePath);
  delete runtime.scripts;
  // Its other dependencies belong to its install script.
  const dependencies = { 'onnxruntime-common': runtime.dependencies['onnxruntime-common'] };
  writeFileSync(runtimePath, JSON.stringify({ ...runtime, dependencies }, null, 2));

  const words = ['pack', '--json', '--pack-destination', destination];
  const packed = spawnSync('npm', words, { cwd: stage, encoding: 'utf8', maxBuffer: 2 ** 26 });
  if (packed.status !== 0) throw new Error(`npm pack: ${packed.stderr}`);
  const told = JSON.parse(packed.stdout);
  // npm 12 answers with an object by name, older versions with a list.
  const [{ filename, size }] = Array.isArray(told) ? told : Object.values(told);
  console.log(`${join(destination, filename)} (${(size / 1e6).toFixed(1)} MB)`);
} finally {
  rmSync(stage, { recursive: true, force: true });
}
