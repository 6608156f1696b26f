/** dist/ as scripts/bundle.mjs makes it: code that lies in other files than its source still finds what it looks for. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { engineVersion } from '../../src/gpu/program/engine-version.ts';
import { packageRoot } from '../../src/host/config-options.ts';

const dist = join(packageRoot, 'dist');
const bundled = readdirSync(dist, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.js') && !file.includes('dashboard/page'))
  .map((file) => ({ file, code: readFileSync(join(dist, file), 'utf8') }));

test('a source file looks for kernels, schemas and processes from its own place, wherever its code came to lie', () => {
  const places = new Set<string>();
  for (const { file, code } of bundled) {
    for (const [, path] of code.matchAll(/^var __moduleUrl\d* = new URL\("([^"]+)", import\.meta\.url\)\.href;$/gm)) {
      const place = relative(dist, fileURLToPath(new URL(path!, pathToFileURL(join(dist, file)))));
      expect(existsSync(join(packageRoot, 'src', place.replace(/\.js$/, '.ts'))), `${file}: ${place}`).toBe(true);
      places.add(place);
    }
    expect(code, file).not.toMatch(/__moduleUrlOf/);
  }
  for (const place of ['gpu/driver/compiler.js', 'host/config-options.js', 'process/module.js']) {
    expect(places).toContain(place);
  }
});

test('the engine in dist/ has the hash of its sources, so that a change of them is another engine', () => {
  expect(bundled.filter(({ code }) => code.includes(`"${engineVersion()}"`))).toHaveLength(1);
});

test('what each folder of src/ exports is in dist/, with its types', () => {
  const doors = readdirSync(join(packageRoot, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((path) => /(^|\/)index\.ts$/.test(path))
    .map((path) => path.replace(/\.ts$/, ''));
  expect(doors).toContain('client/index');
  for (const door of doors) {
    for (const ending of ['.js', '.d.ts']) expect(existsSync(join(dist, door + ending)), door + ending).toBe(true);
  }
});
