/** dist/ as scripts/bundle.mjs makes it: code that is bundled into other files still finds the files that it reads. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { engineVersion } from '../../src/gpu/program/engine-version.ts';
import { packageRoot } from '../../src/host/config/options.ts';

const dist = join(packageRoot, 'dist');
const bundled = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.js') && !file.includes('dashboard/page'))
  .map((file) => ({ file, code: readFileSync(join(dist, file), 'utf8') }));

/** Files of dist/ that are loaded with this one. */
function loadedWith(file: string): Set<string> {
  const seen = new Set([file]);
  for (const each of seen) {
    const { code } = bundled.find((other) => other.file === each)!;
    for (const [, path] of code.matchAll(/^(?:import|(?:import|export|\})[^'";]* from) "(\.[^"]+)";$/gm))
      seen.add(join(dirname(each), path!));
  }
  return seen;
}

test('a source file looks for kernels, schemas and processes from its own place, wherever its code is bundled', () => {
  const places = new Set<string>();
  for (const { file, code } of bundled) {
    for (const [, path] of code.matchAll(/^var __moduleUrl\d* = new URL\("([^"]+)", import\.meta\.url\)\.href;$/gm)) {
      const place = relative(dist, fileURLToPath(new URL(path!, pathToFileURL(join(dist, file)))));
      expect(existsSync(join(packageRoot, 'src', place.replace(/\.js$/, '.ts'))), `${file}: ${place}`).toBe(true);
      places.add(place);
    }
    expect(code, file).not.toMatch(/__moduleUrlOf/);
  }
  for (const place of ['gpu/driver/compiler.js', 'host/config/options.js', 'process/module.js']) {
    expect(places).toContain(place);
  }
});

test('the engine in dist/ has the hash of its sources, so a change of them is another engine', () => {
  const hashes = bundled.flatMap(({ file, code }) =>
    [...code.matchAll(/^var engineVersion\d* = \(\) => "(\w+)";$/gm)].map(([, hash]) => ({ file, hash })),
  );
  const files = loadedWith('gpu/process/main.js');
  expect(hashes.filter(({ file }) => files.has(file))).toHaveLength(1);
  for (const { file, hash } of hashes) expect(hash, file).toBe(engineVersion());
});

test('a process or thread of its own reads one file at its start, or three if it may load code later', () => {
  expect(loadedWith('host/index.js').size).toBeGreaterThan(10);
  for (const file of ['gpu/driver/wait-thread.js', 'gpu/driver/pin-thread.js'])
    expect([...loadedWith(file)]).toEqual([file]);
  for (const file of [
    'cpu/instance/instance-process.js',
    'gpu/process/main.js',
    'gpu/process/compile-worker.js',
    'host/store/validator-process.js',
  ])
    expect(loadedWith(file).size, file).toBeLessThanOrEqual(3);
});

test('the exports of each folder of src/ are in dist/, with their types', () => {
  const doors = readdirSync(join(packageRoot, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((path) => /(^|\/)index\.ts$/.test(path))
    .map((path) => path.replace(/\.ts$/, ''));
  expect(doors).toContain('client/index');
  for (const door of doors) {
    for (const ending of ['.js', '.d.ts']) expect(existsSync(join(dist, door + ending)), door + ending).toBe(true);
  }
});
