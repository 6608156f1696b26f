/** A worker's models: fetched by hash, checked, kept within a limit. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ModelCache, sealManifest, type FunctionManifest, type ManifestFile } from '../../src/queue/index.ts';

let folder: string;
let server: Server;
let url: string;
/** The files of the host, by hash. */
const blobs = new Map<string, Buffer>();
const requests: { path: string; authorization: string | undefined }[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-cache-'));
  blobs.clear();
  requests.length = 0;
  server = createServer((request, response) => {
    const path = request.url ?? '';
    requests.push({ path, authorization: request.headers.authorization });
    const blob = blobs.get(path.slice('/blobs/sha256:'.length));
    if (blob === undefined) response.writeHead(404).end('{"error": "no"}');
    else response.end(blob);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await rm(folder, { recursive: true, force: true });
});

function stored(name: string, content: string): ManifestFile {
  const bytes = Buffer.from(content);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  blobs.set(sha256, bytes);
  return { name, sha256, bytes: bytes.byteLength };
}

function manifestOf(files: [ManifestFile, ...ManifestFile[]], handler?: ManifestFile): FunctionManifest {
  return sealManifest({
    key: 'f@1',
    files,
    ...(handler === undefined ? {} : { handler }),
    limits: { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1, loadTimeoutMs: 1, inferTimeoutMs: 1 },
  });
}

interface Opened {
  readonly cache: ModelCache;
  readonly evicted: string[];
  readonly used: Set<string>;
}

async function open(bytesMax = 1000, apiKey?: string): Promise<Opened> {
  const evicted: string[] = [];
  const used = new Set<string>();
  const cache = new ModelCache({
    folder: join(folder, 'models'),
    bytesMax,
    apiKey,
    inUse: (revision) => used.has(revision),
    onEvict: async (revision) => void evicted.push(revision),
  });
  await cache.start();
  return { cache, evicted, used };
}

test('model, external data and handler arrive under the names that the model uses, with the key, and once', async () => {
  const manifest = manifestOf(
    [stored('model.onnx', 'the model'), stored('parts/weights.bin', 'its weights')],
    stored('f-123.mjs', 'export const preprocess = 1;'),
  );
  const { cache } = await open(1000, 'secret-key');
  const [held, again] = await Promise.all([cache.hold(manifest, [url]), cache.hold(manifest, [url])]);
  expect(again).toEqual(held);
  expect(await readFile(held.modelPath, 'utf8')).toBe('the model');
  expect(await readFile(join(held.modelPath, '..', 'parts', 'weights.bin'), 'utf8')).toBe('its weights');
  expect(await readFile(held.handlerPath ?? '', 'utf8')).toBe('export const preprocess = 1;');
  expect(requests).toHaveLength(3);
  expect(new Set(requests.map(({ authorization }) => authorization))).toEqual(new Set(['Bearer secret-key']));
  expect(cache.bytes).toBe(9 + 11 + 28);
});

test('bytes with another hash are refused with both hashes, and nothing stays', async () => {
  const file = stored('model.onnx', 'the model');
  blobs.set(file.sha256, Buffer.from('a modell!'.slice(0, 9)));
  const { cache } = await open();
  const found = createHash('sha256').update('a modell!').digest('hex');
  await expect(cache.hold(manifestOf([file]), [url])).rejects.toThrow(new RegExp(`${file.sha256}.*${found}`));
  expect(await readdir(join(folder, 'models'))).toEqual([]);
  expect(cache.bytes).toBe(0);
});

test('a host that sends more than it announced is cut off', async () => {
  const file = stored('model.onnx', 'short');
  blobs.set(file.sha256, Buffer.alloc(100_000));
  const { cache } = await open();
  await expect(cache.hold(manifestOf([file]), [url])).rejects.toThrow(/more than the 5 bytes/);
});

test('the next host is asked if the first does not have the file; without any this is reported', async () => {
  const manifest = manifestOf([stored('model.onnx', 'the model')]);
  const { cache } = await open();
  await expect(cache.hold(manifest, ['http://127.0.0.1:1'])).rejects.toThrow(/'model.onnx'.*127\.0\.0\.1:1/);
  await expect(cache.hold(manifest, [])).rejects.toThrow(/no host is there/);
  await cache.hold(manifest, ['http://127.0.0.1:1', url]);
  expect(cache.holds(manifest.revision)).toBe(true);
});

test('the least recently used function is evicted, but none with running calls', async () => {
  const [one, two, three, four] = ['1', '2', '3', '4'].map((text) =>
    manifestOf([stored('model.onnx', text.repeat(400))]),
  ) as [FunctionManifest, FunctionManifest, FunctionManifest, FunctionManifest];
  const { cache, evicted, used } = await open(1000);
  await cache.hold(one, [url]);
  await cache.hold(two, [url]);
  expect(cache.hasRoomFor(three)).toBe(false);
  await cache.hold(one, [url]);
  await cache.hold(three, [url]);
  expect(evicted).toEqual([two.revision]);
  used.add(one.revision);
  await cache.hold(four, [url]);
  expect(evicted).toEqual([two.revision, three.revision]);
  expect(cache.bytes).toBe(800);
  const large = manifestOf([stored('model.onnx', 'x'.repeat(1001))]);
  await expect(cache.hold(large, [url])).rejects.toThrow(/1001 bytes of f@1.*1000/);
});

test('a restart finds complete functions, and removes incomplete ones', async () => {
  const manifest = manifestOf([stored('model.onnx', 'the model')]);
  const other = manifestOf([stored('model.onnx', 'another')]);
  const first = await open();
  const held = await first.cache.hold(manifest, [url]);
  const damaged = await first.cache.hold(other, [url]);
  await writeFile(damaged.modelPath, 'cut');
  const { cache } = await open();
  expect([cache.holds(manifest.revision), cache.holds(other.revision)]).toEqual([true, false]);
  requests.length = 0;
  expect(await cache.hold(manifest, [])).toEqual(held);
  expect(requests).toEqual([]);
});

test('a manifest that names a file outside its folder is invalid', async () => {
  const { parseManifest } = await import('../../src/queue/manifest.ts');
  const good = manifestOf([stored('model.onnx', 'm')]);
  expect(parseManifest(JSON.stringify(good))).toEqual(good);
  for (const name of ['../model.onnx', '/etc/passwd', 'a/../../b', 'a\\..\\b', '']) {
    expect(parseManifest(JSON.stringify({ ...good, files: [{ ...good.files[0], name }] }))).toBeUndefined();
  }
  for (const text of ['', '{}', '[]', 'null', '{"files": []}']) expect(parseManifest(text)).toBeUndefined();
});
