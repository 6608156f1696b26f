/**
 * The packed package, unpacked with only the packages that it names: the result of `npm i -g` with the tarball.
 * test/install/in-empty-root.sh does it with npm, in an otherwise empty root.
 */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { libcFunction } from '../../src/process/index.ts';
import { unixAddress } from '../../src/process/service-manager.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { serve, type ServingHost } from '../cli/command.ts';
import { serveNpmRegistry } from '../support/npm-registry.ts';
import { writeScaleModel } from '../support/models.ts';
import { outputOf, runCommand } from '../support/run-command.ts';

let dir: string;
let tarball: string;
let paths: readonly string[];

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-package-'));
  await outputOf(process.execPath, [join(packageRoot, 'scripts', 'package.mjs'), dir], { cwd: packageRoot });
  tarball = readdirSync(dir).map((name) => join(dir, name))[0] ?? '';
  const listed = await outputOf('tar', ['-xvzf', tarball, '-C', dir]);
  paths = listed.split('\n').map((path) => path.replace(/^package\//, ''));
});

afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
});

/** The unpacked tarball with another version number, and links to the packages that its package.json names. */
function install(place: string, version: string): { readonly command: string; readonly cwd: string } {
  const modules = join(dir, place, 'node_modules');
  const root = join(modules, 'turntable');
  mkdirSync(modules, { recursive: true });
  execFileSync('cp', ['--recursive', '--link', join(dir, 'package'), root]);
  const manifest = join(root, 'package.json');
  const described = JSON.parse(readFileSync(manifest, 'utf8')) as { dependencies: Record<string, string> };
  rmSync(manifest); // All unpacked copies share the file itself.
  writeFileSync(manifest, JSON.stringify({ ...described, version }));
  for (const name of Object.keys(described.dependencies)) {
    if (existsSync(join(root, 'node_modules', name))) continue; // bundled
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(packageRoot, 'node_modules', name), join(modules, name));
  }
  return { command: join(root, 'bin', 'turntable.js'), cwd: join(dir, place) };
}

/** Receives a service's messages to systemd, through the C library: Node has no datagrams over Unix sockets. */
function serviceManager() {
  const path = join(dir, 'notify');
  const socket = libcFunction('int socket(int family, int type, int protocol)')!(1, 2, 0) as number;
  const address = unixAddress(path);
  const bind = libcFunction('int bind(int socket, const void *address, uint addressBytes)')!;
  expect(bind(socket, address, address.length)).toBe(0);
  const receive = libcFunction('long recv(int socket, void *buffer, size_t bytes, int flags)')!;
  return {
    path,
    told(): string {
      const buffer = Buffer.alloc(100);
      const doNotWait = 0x40;
      return buffer.toString('utf8', 0, Math.max(0, receive(socket, buffer, buffer.length, doNotWait) as number));
    },
    close: () => libcFunction('int close(int descriptor)')!(socket),
  };
}

async function answer(host: ServingHost, name: string, body: string): Promise<unknown> {
  return await (await fetch(`${host.url}/function/${name}`, { method: 'POST', body })).json();
}

test('the tarball has what a host needs, and neither sources, tests nor source maps', () => {
  for (const needed of ['bin/turntable.js', 'dist/cli/main.js', 'dist/client/index.d.ts', 'CHANGELOG.md', 'LICENSE']) {
    expect(paths).toContain(needed);
  }
  const own = paths.filter((path) => !path.startsWith('node_modules/'));
  expect(own.filter((path) => /^(src|test|bench)\/|\.test\.|\.map$/.test(path))).toEqual([]);
});

test('ONNX Runtime is in the tarball for both kinds of Linux, and its installation downloads nothing', () => {
  const runtime = 'node_modules/onnxruntime-node/';
  const libraries = paths.filter((path) => path.startsWith(runtime) && /\.so\.|\.dylib|\.dll/.test(path));
  expect(libraries.map((path) => path.split('/').at(-2))).toEqual(expect.arrayContaining(['arm64', 'x64']));
  expect(libraries).toHaveLength(2);
  const manifest = readFileSync(join(dir, 'package', runtime, 'package.json'), 'utf8');
  expect(JSON.parse(manifest)).not.toHaveProperty('scripts');
});

test('`npm ci` runs no install script, with an npm that reads `allowScripts` and with one that does not', () => {
  const lock = readFileSync(join(packageRoot, 'package-lock.json'), 'utf8');
  // Older ones run the scripts of packages marked in the lock file. `npm install` marks them again: remove the lines.
  expect(lock).not.toContain('"hasInstallScript"');
  const { allowScripts } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as {
    allowScripts: Record<string, boolean>;
  };
  expect(allowScripts).toMatchObject({ 'onnxruntime-node': false });
});

test('it answers from an empty folder, notifies systemd, and an upgrade finds the earlier functions and settings', async () => {
  const words = ['--data', join(dir, 'data'), '--log-level', 'error'];
  const manager = serviceManager();
  const before = await serve(words, { NOTIFY_SOCKET: manager.path }, install('before', '0.1.0'));
  expect(manager.told()).toBe('READY=1');
  expect(await answer(before, 'language-id', 'Où est la bibliothèque ?')).toMatchObject({ language: 'fr' });
  const body = readFileSync(await writeScaleModel(dir, 3));
  await fetch(`${before.url}/functions/scale`, { method: 'PUT', body });
  await fetch(`${before.url}/functions/scale?slo=70ms`, { method: 'PATCH' });
  expect(await before.end()).toBe(0);
  expect(manager.told()).toBe('STOPPING=1');
  manager.close();
  const after = await serve(words, {}, install('after', '0.1.1'));
  try {
    expect(await (await fetch(`${after.url}/v2`)).json()).toMatchObject({ version: '0.1.1' });
    expect(await answer(after, 'scale', '{"input": [[1, 2, 0, 0]]}')).toEqual({ output: [[3, 6, 0, 0]] });
    expect(await (await fetch(`${after.url}/functions/scale`)).json()).toMatchObject({ slo_ms: 70 });
  } finally {
    expect(await after.end()).toBe(0);
  }
});

test('a JPEG gets its label in three steps: init with an example, around a model of its own or not, serve, call', async () => {
  const from = install('newcomer', '0.1.0');
  await using registry = await serveNpmRegistry(['jpeg-js']);
  const env = { ...process.env, ...registry.environment };
  const run = (...words: string[]): Promise<string> =>
    outputOf(process.execPath, [from.command, ...words], { cwd: from.cwd, env });
  expect(await run('init', 'labels', '--example', 'image-classification')).toContain('made functions/labels');
  // A user's model, which has other names and sizes than the stand-in: the third class is the largest mean.
  const graph = new GraphBuilder('own');
  const images = graph.input('images', ElementType.FLOAT, ['n', 3, 224, 224]);
  const means = graph.node('Flatten', [graph.node('GlobalAveragePool', [images])]);
  const weights = graph.weight('weights', [3, 7], new Float32Array(21));
  const bias = graph.weight('bias', [7], Float32Array.of(0, 0, 9, 0, 0, 0, 0));
  graph.output(graph.node('Gemm', [means, weights, bias]), ElementType.FLOAT, ['n', 7], 'scores');
  await writeModel(graph.build(), join(from.cwd, 'own.onnx'));
  const made = await run('init', 'own', '--example', 'image-classification', '--model', 'own.onnx');
  expect(made).toContain(
    "handler.ts reads 'logits' FP32 [-1, 4], and the model has 'scores' FP32 [-1, 7]: change it there",
  );
  expect(made).not.toContain('handler.ts gives');
  const words = ['--functions', 'functions', '--data', join(dir, 'newcomer-data'), '--log-level', 'error'];
  const host = await serve(words, {}, from);
  try {
    const reply = await run('call', 'labels', '--file', 'functions/labels/photo.jpg', '--url', host.url);
    expect(JSON.parse(reply)).toMatchObject({ label: 'red' });
    const own = await run('call', 'own', '--file', 'functions/own/photo.jpg', '--url', host.url);
    expect(JSON.parse(own)).toMatchObject({ label: 'blue' });
  } finally {
    expect(await host.end()).toBe(0);
  }
  // The table that compares the steps with other servers counts these three.
  const table = readFileSync(join(packageRoot, 'docs', 'coming-from.md'), 'utf8');
  expect(table).toMatch(
    /^\| JPEG to label +\| \*\*3\*\*: `turntable init NAME --example image-classification`, serve, call /m,
  );
});

test('an example whose packages npm cannot get is left to be finished, and says how', async () => {
  const from = install('offline', '0.1.0');
  await using registry = await serveNpmRegistry([]);
  const env = { ...process.env, ...registry.environment };
  const words = [from.command, 'init', 'labels', '--example', 'image-classification'];
  expect(await runCommand(process.execPath, words, { cwd: from.cwd, env })).toMatchObject({
    exitCode: 1,
    stderr: expect.stringMatching(
      /\(code E404; 404 .*\); try again: npm install --prefix functions\/labels$/m,
    ) as string,
  });
  expect(existsSync(join(from.cwd, 'functions', 'labels', 'function.json'))).toBe(true);
});
