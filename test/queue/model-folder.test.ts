/** A worker's models: fetched by hash, checked, kept within a limit. */
import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { filesOf } from '../../src/queue/manifest.ts';
import { ModelFolder } from '../../src/queue/model-folder.ts';
import { sealManifest, type FunctionManifest, type ManifestFile } from '../../src/queue/index.ts';
import { ContentCache, FolderStore } from '../../src/store/index.ts';
import { silentLog } from '../support/silent-log.ts';

let folder: string;
let blobs: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-cache-'));
  blobs = join(folder, 'store', 'blobs', 'sha256');
  mkdirSync(blobs, { recursive: true });
});

afterEach(async () => {
  vi.restoreAllMocks();
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
  readonly models: ModelFolder;
  readonly cache: ContentCache<FunctionManifest>;
  /** Brings a function here, and uses it. */
  readonly hold: (manifest: FunctionManifest) => Promise<ReturnType<ModelFolder['pathsOf']>>;
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
  const models = new ModelFolder(join(folder, 'models'));
  let uses = 0;
  const usedAt = new Map<string, number>();
  const cache = new ContentCache<FunctionManifest>({
    store,
    bytesMax,
    staysMs: 0,
    keyOf: ({ revision }) => revision,
    filesOf,
    nameOf: ({ key }) => key,
    idleMs: ({ revision }) => (used.has(revision) ? -1 : uses - (usedAt.get(revision) ?? 0)),
    held: () => models.manifests(),
    isMissing: ({ revision }) => !models.has(revision),
    hold: async (manifest, files, fetch) => await models.add(manifest, files, fetch),
    drop: async (manifest) => await models.drop(manifest, async () => void evicted.push(manifest.revision)),
    log: silentLog,
  });
  await models.start();
  await cache.shrink();
  const hold = async (manifest: FunctionManifest): Promise<ReturnType<ModelFolder['pathsOf']>> => {
    await cache.bring(manifest);
    usedAt.set(manifest.revision, ++uses);
    return models.pathsOf(manifest);
  };
  return { models, cache, hold, asked, evicted, used };
}

test('model, external data and handler arrive under the names that the model uses, and once', async () => {
  const manifest = manifestOf(
    [stored('model.onnx', 'the model'), stored('parts/weights.bin', 'its weights')],
    stored('f-123.mjs', 'export const preprocess = 1;'),
  );
  const { cache, hold, asked } = await open();
  const [held, again] = await Promise.all([hold(manifest), hold(manifest)]);
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
  const { cache, hold } = await open();
  const found = createHash('sha256').update('a modell!').digest('hex');
  await expect(hold(manifestOf([file]))).rejects.toThrow(new RegExp(`${file.sha256}.*${found}`));
  expect(await readdir(join(folder, 'models'))).toEqual([]);
  expect(cache.bytes).toBe(0);
});

test('a store that sends more than it announced is cut off', async () => {
  const file = stored('model.onnx', 'short');
  writeFileSync(join(blobs, file.sha256), Buffer.alloc(100_000));
  const { hold } = await open();
  await expect(hold(manifestOf([file]))).rejects.toThrow(/more than the 5 bytes/);
});

test('a store without the file is named, with the file', async () => {
  const file = stored('model.onnx', 'the model');
  const { hold, models } = await open();
  await rm(join(blobs, file.sha256));
  await expect(hold(manifestOf([file]))).rejects.toThrow(/'model.onnx'.*the folder .* has no file/);
  stored('model.onnx', 'the model');
  await hold(manifestOf([file]));
  expect(models.has(manifestOf([file]).revision)).toBe(true);
});

test('the least recently used function is evicted, but none with running calls', async () => {
  const [one, two, three, four] = ['1', '2', '3', '4'].map((text) =>
    manifestOf([stored('model.onnx', text.repeat(400))]),
  ) as [FunctionManifest, FunctionManifest, FunctionManifest, FunctionManifest];
  const { cache, hold, evicted, used } = await open(1000);
  await hold(one);
  await hold(two);
  await hold(one);
  await hold(three);
  expect(evicted).toEqual([two.revision]);
  used.add(one.revision);
  await hold(four);
  expect(evicted).toEqual([two.revision, three.revision]);
  expect(cache.bytes).toBe(800);
});

test.each([-400, -1, 1, 400])(
  'a function is idle since its latest use, though the clock jumps by %d days',
  async (days) => {
    const [one, two] = [manifestOf([stored('model.onnx', 'one')]), manifestOf([stored('model.onnx', 'two')])];
    const { models, hold } = await open();
    await hold(one);
    const afterUse = performance.now();
    const now = Date.now.bind(Date);
    vi.spyOn(Date, 'now').mockImplementation(() => now() + days * 24 * 3_600_000);
    expect(models.idleMs(one.revision)).toBeGreaterThanOrEqual(0);
    await hold(two);
    // The first is the one to leave.
    expect(models.idleMs(one.revision)).toBeGreaterThan(models.idleMs(two.revision));
    expect(models.idleMs(one.revision)).toBeLessThan(1000 + performance.now() - afterUse);
  },
);

test('a file that another function has here is neither fetched again nor counted twice', async () => {
  const model = stored('model.onnx', 'the model');
  const { cache, hold, asked } = await open();
  await hold(manifestOf([model]));
  const second = await hold(manifestOf([model], stored('f-123.mjs', 'export const preprocess = 1;')));
  expect(await readFile(second.modelPath, 'utf8')).toBe('the model');
  expect(asked).toHaveLength(2);
  expect(cache.bytes).toBe(9 + 28);
});

test.each(['.whole', 'model.onnx.part', '.part', 'w'.repeat(255)])('a model may have a file named %s', async (name) => {
  const manifest = manifestOf([stored('model.onnx', 'the model'), stored(name, 'its weights')]);
  const first = await open();
  const held = await first.hold(manifest);
  const weights = join(held.modelPath, '..', name);
  expect(await readFile(weights, 'utf8')).toBe('its weights');
  const { models, hold, asked } = await open();
  expect([models.has(manifest.revision), await hold(manifest), asked]).toEqual([true, held, []]);
  expect(await readFile(weights, 'utf8')).toBe('its weights');
});

test('a mark whose folder never came, or a folder without one, is removed at the start', async () => {
  const [one, two] = [manifestOf([stored('model.onnx', 'one')]), manifestOf([stored('model.onnx', 'two')])];
  const { hold } = await open();
  const [held] = [await hold(one), await hold(two)];
  await rm(join(held.modelPath, '..'), { recursive: true });
  await rm(join(folder, 'models', `${two.revision}.whole`));
  const { models } = await open();
  expect([models.has(one.revision), models.has(two.revision)]).toEqual([false, false]);
  expect(await readdir(join(folder, 'models'))).toEqual([]);
});

test('a restart finds complete functions, and removes incomplete ones', async () => {
  const manifest = manifestOf([stored('model.onnx', 'the model')]);
  const other = manifestOf([stored('model.onnx', 'another')]);
  const first = await open();
  const held = await first.hold(manifest);
  const damaged = await first.hold(other);
  await writeFile(damaged.modelPath, 'cut');
  const { models, hold, asked } = await open();
  expect([models.has(manifest.revision), models.has(other.revision)]).toEqual([true, false]);
  expect(await hold(manifest)).toEqual(held);
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
