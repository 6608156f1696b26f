/** A worker's models: fetched by hash, checked, kept within a limit. */
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ModelCache, sealManifest, type FunctionManifest, type ManifestFile } from '../../src/queue/index.ts';
import { FolderStore } from '../../src/store/index.ts';

let folder: string;
let blobs: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-cache-'));
  blobs = join(folder, 'store', 'blobs', 'sha256');
  mkdirSync(blobs, { recursive: true });
});

afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

/** Puts a file into the store. */
function stored(name: string, content: string): ManifestFile {
  const bytes = Buffer.from(content);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  writeFileSync(join(blobs, sha256), bytes);
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
  /** Files that the store was asked for. */
  readonly asked: string[];
  readonly evicted: string[];
  readonly used: Set<string>;
}

async function open(bytesMax = 1000): Promise<Opened> {
  const evicted: string[] = [];
  const asked: string[] = [];
  const store = new FolderStore(join(folder, 'store'));
  const source = store.source.bind(store);
  vi.spyOn(store, 'source').mockImplementation((signal) => {
    const made = source(signal);
    return {
      ...made,
      open: async (sha256, range) => {
        asked.push(sha256);
        return await made.open(sha256, range);
      },
    };
  });
  const used = new Set<string>();
  const cache = new ModelCache({
    folder: join(folder, 'models'),
    bytesMax,
    store,
    inUse: (revision) => used.has(revision),
    onEvict: async (revision) => void evicted.push(revision),
  });
  await cache.start();
  return { cache, asked, evicted, used };
}

test('model, external data and handler arrive under the names that the model uses, and once', async () => {
  const manifest = manifestOf(
    [stored('model.onnx', 'the model'), stored('parts/weights.bin', 'its weights')],
    stored('f-123.mjs', 'export const preprocess = 1;'),
  );
  const { cache, asked } = await open();
  const [held, again] = await Promise.all([cache.hold(manifest), cache.hold(manifest)]);
  expect(again).toEqual(held);
  expect(await readFile(held.modelPath, 'utf8')).toBe('the model');
  expect(await readFile(join(held.modelPath, '..', 'parts', 'weights.bin'), 'utf8')).toBe('its weights');
  expect(await readFile(held.handlerPath ?? '', 'utf8')).toBe('export const preprocess = 1;');
  expect(asked).toHaveLength(3);
  expect(cache.bytes).toBe(9 + 11 + 28);
});

test('bytes with another hash are refused with both hashes, and nothing stays', async () => {
  const file = stored('model.onnx', 'the model');
  writeFileSync(join(blobs, file.sha256), 'a modell!');
  const { cache } = await open();
  const found = createHash('sha256').update('a modell!').digest('hex');
  await expect(cache.hold(manifestOf([file]))).rejects.toThrow(new RegExp(`${file.sha256}.*${found}`));
  expect(await readdir(join(folder, 'models'))).toEqual([]);
  expect(cache.bytes).toBe(0);
});

test('a store that sends more than it announced is cut off', async () => {
  const file = stored('model.onnx', 'short');
  writeFileSync(join(blobs, file.sha256), Buffer.alloc(100_000));
  const { cache } = await open();
  await expect(cache.hold(manifestOf([file]))).rejects.toThrow(/more than the 5 bytes/);
});

test('a store without the file is named, with the file', async () => {
  const file = stored('model.onnx', 'the model');
  const { cache } = await open();
  await rm(join(blobs, file.sha256));
  await expect(cache.hold(manifestOf([file]))).rejects.toThrow(/'model.onnx'.*the folder .* has no file/);
  stored('model.onnx', 'the model');
  await cache.hold(manifestOf([file]));
  expect(cache.holds(manifestOf([file]).revision)).toBe(true);
});

test('the least recently used function is evicted, but none with running calls', async () => {
  const [one, two, three, four] = ['1', '2', '3', '4'].map((text) =>
    manifestOf([stored('model.onnx', text.repeat(400))]),
  ) as [FunctionManifest, FunctionManifest, FunctionManifest, FunctionManifest];
  const { cache, evicted, used } = await open(1000);
  await cache.hold(one);
  await cache.hold(two);
  expect(cache.hasRoomFor(three)).toBe(false);
  await cache.hold(one);
  await cache.hold(three);
  expect(evicted).toEqual([two.revision]);
  used.add(one.revision);
  await cache.hold(four);
  expect(evicted).toEqual([two.revision, three.revision]);
  expect(cache.bytes).toBe(800);
  const large = manifestOf([stored('model.onnx', 'x'.repeat(1001))]);
  await expect(cache.hold(large)).rejects.toThrow(/1001 bytes of f@1.*1000/);
});

test('a restart finds complete functions, and removes incomplete ones', async () => {
  const manifest = manifestOf([stored('model.onnx', 'the model')]);
  const other = manifestOf([stored('model.onnx', 'another')]);
  const first = await open();
  const held = await first.cache.hold(manifest);
  const damaged = await first.cache.hold(other);
  await writeFile(damaged.modelPath, 'cut');
  const { cache, asked } = await open();
  expect([cache.holds(manifest.revision), cache.holds(other.revision)]).toEqual([true, false]);
  expect(await cache.hold(manifest)).toEqual(held);
  expect(asked).toEqual([]);
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
