/** Models in chunks: versions share them on the disk, and each is still what was published, byte for byte. */
import {
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { collectStore } from '../../src/host/store/collect-store.ts';
import { checkStore } from '../../src/host/store/fsck.ts';
import type { DiskModelStore } from '../../src/host/store/index.ts';
import type { FunctionVersion } from '../../src/host/types.ts';
import { buildArchitecture, readStructure, weightLocations, writeModel } from '../../src/onnx/index.ts';
import { Bucket } from '../../src/store/bucket.ts';
import { FolderStore, streamOf as streamOfContent, type Store } from '../../src/store/index.ts';
import { NativeSession, type Tensor, tensorOf } from '../../src/tensor/index.ts';
import { S3Server, s3Keys } from '../support/s3-server.ts';
import { checkedHere, failureOf, headedModel, sha256, storeFixture, type StoreFixture } from './store-fixtures.ts';

const limits = { uploadBytesMax: 1e9 };
let made: string;
let fixture: StoreFixture;
beforeEach(() => {
  made = mkdtempSync(join(tmpdir(), 'turntable-chunked-'));
  fixture = storeFixture({ validate: checkedHere, limits });
});
afterEach(() => {
  fixture[Symbol.dispose]();
  rmSync(made, { recursive: true, force: true });
});

async function started(options: Parameters<StoreFixture['again']>[0] = {}): Promise<DiskModelStore> {
  const store = fixture.again(options);
  await store.start();
  await store.verified();
  return store;
}

/** A ResNet of a quarter of the usual width: 5.9 MB. Its last layer has as many classes, and values of its own. */
async function writeResNet(head: number, classes = 10, externalData: 'never' | 'always' = 'never'): Promise<string> {
  const { model } = buildArchitecture('resnet50', { width: 16, image: 32, classes });
  const own = Float32Array.from({ length: 512 * classes }, (_, at) => Math.sin(at + head * 77));
  for (const tensor of model.graph.initializer) {
    if (!tensor.name.startsWith('fc.')) continue;
    const bytes = tensor.dims.reduce((product, dim) => product * Number(dim), 4);
    tensor.source = () => new Uint8Array(own.buffer, 0, bytes);
  }
  const path = join(made, `${externalData}-${head}-${classes}`, 'model.onnx');
  await writeModel(model, path, { externalData });
  return path;
}

async function* inPieces(content: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.byteLength; at += 2 ** 18)
    yield await Promise.resolve(content.subarray(at, at + 2 ** 18));
}

async function publishFrom(store: DiskModelStore, path: string, version?: string, name = 'net') {
  const publication = await store.beginPublish(name, version);
  try {
    const folder = join(path, '..');
    for (const file of readdirSync(folder))
      await publication.writeFile(file, inPieces(readFileSync(join(folder, file))));
    return await publication.commit({});
  } finally {
    await publication.abort();
  }
}

async function original(store: DiskModelStore, hash: string): Promise<Buffer | undefined> {
  await using content = await store.openContent(hash);
  if (content === undefined) return undefined;
  const parts: Uint8Array[] = [];
  for await (const part of streamOfContent(content)) parts.push(part);
  return Buffer.concat(parts);
}

/** Bytes of all files below a folder, one with several names once. */
function bytesBelow(folder: string): number {
  const files = new Map<number, number>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const { ino, size } = statSync(join(entry.parentPath, entry.name));
    files.set(ino, size);
  }
  return [...files.values()].reduce((sum, size) => sum + size, 0);
}

const image = (): Tensor[] => {
  const pixels = Float32Array.from({ length: 3 * 32 * 32 }, (_, at) => Math.cos(at));
  return [tensorOf('input', 'FP32', [1, 3, 32, 32], pixels)];
};

function answer(modelPath: string): Buffer {
  const session = new NativeSession(modelPath, { intraOpNumThreads: 1, logSeverityLevel: 3 });
  try {
    return Buffer.from(session.runTensors(image(), session.outputNames)[0]!.data);
  } finally {
    session.release();
  }
}

const weightBytes = (path: string): number[] =>
  Array.from(weightLocations(readStructure(path), path).values(), ({ byteLength }) => byteLength);

test('versions with other heads take little more than their heads, answer as published, and come back byte for byte', async () => {
  const store = await started();
  const versions: [FunctionVersion, string][] = [];
  for (let head = 0; head < 6; head++) {
    const path = await writeResNet(head);
    const { version, created } = await publishFrom(store, path);
    expect(created).toBe(true);
    versions.push([version, path]);
  }
  const oneBytes = statSync(versions[0]![1]).size;
  const headBytes = 512 * 10 * 4 + 40;
  const total = bytesBelow(join(fixture.dataDir, 'blobs'));
  // Its manifest has a hundred bytes per chunk, and the head lies in chunks with small neighbours.
  expect(total).toBeLessThan(oneBytes + 5 * (headBytes + 64 * 1024));
  for (const [version, path] of versions) {
    const published = readFileSync(path);
    expect(version.modelBytes).toBe(published.byteLength);
    expect(version.metadata).toEqual((await checkedHere(path)).metadata);
    expect(statSync(version.modelPath).size).toBeLessThan(published.byteLength / 10);
    expect(answer(version.modelPath).equals(answer(path))).toBe(true);
    expect(store.hasBlob(version.modelSha256)).toBe(true);
    expect((await original(store, version.modelSha256))?.equals(published)).toBe(true);
    expect(weightBytes(version.modelPath)).toEqual(expect.arrayContaining(weightBytes(path)));
  }
  expect((await checkStore(fixture.dataDir)).problems).toEqual([]);
  await store.close();
  expect(fixture.staging()).toEqual([]);
});

test('figures of the disk count what versions share once, and prepared files, each by its bytes', async () => {
  const store = await started();
  const [one, two] = [await writeResNet(0), await writeResNet(1)];
  await publishFrom(store, one, '1');
  const alone = store.diskUse.latest();
  expect(alone.parts.shared).toBe(0);
  expect(alone.versions.get('net@1')).toEqual({ own: bytesBelow(join(fixture.dataDir, 'blobs')), shared: 0 });
  await publishFrom(store, two, '2');
  const prepared = join(fixture.dataDir, 'cache', 'weights', 'entry');
  mkdirSync(prepared, { recursive: true });
  writeFileSync(join(prepared, '0'), Buffer.alloc(5000));
  linkSync(join(prepared, '0'), join(prepared, 'again'));
  const { parts, versions } = await fixture.again().diskUse.current();
  expect([parts.cpuCache, parts.gpuCache, versions.size]).toEqual([5000, 0, 0]);
  const both = store.diskUse.latest();
  expect(both.parts.own + both.parts.shared).toBe(bytesBelow(join(fixture.dataDir, 'blobs')));
  for (const { own, shared } of both.versions.values()) {
    expect(own).toBeLessThan(200_000);
    expect(shared).toBe(both.parts.shared);
  }
  await store.close();
});

test('a part of an original is read from any byte to any other', async () => {
  const store = await started();
  const path = await writeResNet(0);
  const { version } = await publishFrom(store, path);
  const published = readFileSync(path);
  await using content = await store.openContent(version.modelSha256);
  let at = 12_345;
  for (let turn = 0; turn < 200; turn++) {
    at = (at * 48_271) % 2_147_483_647;
    const from = at % published.byteLength;
    const memory = new Uint8Array(1 + (at % 200_000));
    const filled = await content!.readAt(memory, from);
    expect(filled).toBe(Math.min(memory.byteLength, published.byteLength - from));
    expect(published.subarray(from, from + filled).equals(memory.subarray(0, filled))).toBe(true);
  }
  await store.close();
});

test('external data is cut too, and both files come back byte for byte', async () => {
  const store = await started();
  const beside = await writeResNet(0, 10, 'always');
  const { version } = await publishFrom(store, beside, undefined, 'beside');
  const before = bytesBelow(join(fixture.dataDir, 'blobs'));
  const { version: inline } = await publishFrom(store, await writeResNet(0), undefined, 'inline');
  expect(answer(version.modelPath).equals(answer(inline.modelPath))).toBe(true);
  expect(bytesBelow(join(fixture.dataDir, 'blobs')) - before).toBeLessThan(600_000);
  for (const file of readdirSync(join(beside, '..'))) {
    const published = readFileSync(join(beside, '..', file));
    expect((await original(store, sha256(published)))?.equals(published)).toBe(true);
  }
  await store.close();
});

test('the same model under another name takes nothing, and a publication by hash works', async () => {
  const store = await started();
  const path = await writeResNet(0);
  const { version } = await publishFrom(store, path);
  const before = fixture.blobs();
  await publishFrom(store, path, undefined, 'twin');
  expect(fixture.blobs()).toEqual(before);
  const publication = await store.beginPublish('by-hash', undefined);
  await publication.useBlob('model.onnx', version.modelSha256);
  const { version: other } = await publication.commit({});
  await publication.abort();
  expect(other.modelSha256).toBe(version.modelSha256);
  expect(fixture.blobs()).toEqual(before);
  expect((await publishFrom(store, path)).created).toBe(false);
  await store.close();
});

test('removing a version frees the chunks that no other has, and the others go on', async () => {
  const store = await started();
  const [one, two] = [await writeResNet(0), await writeResNet(1)];
  const { version } = await publishFrom(store, one, '1');
  const alone = fixture.blobs();
  await publishFrom(store, two, '2');
  await store.remove('net', '2');
  expect(fixture.blobs()).toEqual(alone);
  expect((await original(store, version.modelSha256))?.equals(readFileSync(one))).toBe(true);
  await store.remove('net', undefined);
  expect(fixture.blobs()).toEqual([]);
  await store.close();
});

test('a restart knows the chunks again, and installs from the blobs what it lost', async () => {
  const store = await started();
  const path = await writeResNet(0);
  const { version } = await publishFrom(store, path);
  await store.close();
  const again = await started();
  expect(again.find('net')?.state).toEqual({ status: 'ready' });
  await again.close();
  rmSync(join(version.modelPath, '..'), { recursive: true });
  const third = await started();
  expect(third.find('net')?.state).toEqual({ status: 'ready' });
  expect((await original(third, version.modelSha256))?.equals(readFileSync(path))).toBe(true);
  await third.close();
});

test.each(['.chunks', '.layout', 'model.onnx', 'weights/0', 'weights/7'])(
  'damage of %s is found, fsck names it, and publishing again mends it for all versions',
  async (file) => {
    const store = await started();
    const [one, two] = [await writeResNet(0), await writeResNet(1)];
    const { version } = await publishFrom(store, one, '1');
    await publishFrom(store, two, '2');
    await store.close();
    const damaged = join(version.modelPath, '..', file);
    const bytes = readFileSync(damaged);
    bytes[bytes.byteLength >> 1]! ^= 1;
    writeFileSync(damaged, bytes);
    const report = await checkStore(fixture.dataDir);
    expect(report.problems.map(({ path }) => path)).toContainEqual(expect.stringContaining(file));
    const again = await started();
    expect(again.find('net', '1')?.state).toMatchObject({ status: 'unavailable' });
    expect(await original(again, version.modelSha256)).toBeUndefined();
    expect((await publishFrom(again, one, '1')).created).toBe(true);
    expect(again.find('net', '1')?.state).toEqual({ status: 'ready' });
    expect(again.find('net', '2')?.state).toEqual({ status: 'ready' });
    expect((await original(again, version.modelSha256))?.equals(readFileSync(one))).toBe(true);
    expect(answer(version.modelPath).equals(answer(one))).toBe(true);
    await again.close();
    expect((await checkStore(fixture.dataDir)).problems).toEqual([]);
  },
);

test('a shared store gets each chunk once, another host fetches what it lacks, and collects only what none names', async () => {
  const root = join(made, 'store');
  const shared = { store: new FolderStore(root), cacheBytes: undefined, idleMs: () => Infinity };
  const store = await started({ shared });
  const [one, two] = [await writeResNet(0), await writeResNet(1)];
  const { version } = await publishFrom(store, one, '1');
  const first = readdirSync(join(root, 'blobs', 'sha256')).length;
  await publishFrom(store, two, '2');
  expect(readdirSync(join(root, 'blobs', 'sha256')).length - first).toBeLessThan(6);
  expect(await collectStore(shared.store, 0)).toEqual({ files: 0, bytes: 0 });
  const other = fixture.again({ shared, dataDir: join(made, 'other') });
  await other.start();
  expect(other.find('net', '1')?.state).toEqual({ status: 'elsewhere' });
  for (const key of ['1', '2']) {
    other.hurry(other.find('net', key)!);
    await expect.poll(() => other.find('net', key)?.state, { timeout: 60_000 }).toEqual({ status: 'ready' });
  }
  expect((await original(other, version.modelSha256))?.equals(readFileSync(one))).toBe(true);
  expect(other.cache!.bytes).toBeLessThan(1.1 * statSync(one).size);
  await store.remove('net', '2');
  const { files } = await collectStore(shared.store, 0);
  expect(files).toBeGreaterThan(0);
  expect(readdirSync(join(root, 'blobs', 'sha256'))).toHaveLength(first);
  await other.close();
  await store.close();
});

describe.each(['folder', 'bucket', 'bucket that fails every third write'])('in a %s', (kind) => {
  test('two hosts that publish at the same instant lose no version, and no chunk of one', async () => {
    await using s3 = await S3Server.start();
    const root = join(made, 'store');
    const open = (): Store =>
      kind === 'folder'
        ? new FolderStore(root)
        : new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, retryMs: 1 });
    let requests = 0;
    const faults = ['lost-request', 'lost-reply', 'late', 'busy'] as const;
    if (kind.includes('fails')) s3.faultOf = () => (requests++ % 3 === 2 ? faults[requests % 4] : undefined);
    const host = async (name: string): Promise<DiskModelStore> => {
      const shared = { store: open(), cacheBytes: undefined, idleMs: () => Infinity };
      const store = fixture.again({ shared, dataDir: join(made, name) });
      await store.start();
      return store;
    };
    const hosts = [await host('one'), await host('two')];
    const published = new Map<string, string>();
    for (let round = 0; round < 4; round++) {
      const turn = hosts.map(async (store, at) => {
        const model = headedModel(round * 2 + at);
        const publication = await store.beginPublish('net', undefined);
        try {
          await publication.writeFile('model.onnx', inPieces(model));
          const { version } = await publication.commit({});
          expect(published.has(version.version)).toBe(false);
          published.set(version.version, sha256(model));
        } finally {
          await publication.abort();
        }
      });
      await Promise.all(turn);
    }
    expect(published.size).toBe(8);
    // What a removal frees is one head; nothing of the others goes.
    await hosts[0]!.remove('net', '3');
    published.delete('3');
    await collectStore(open(), 0);
    const third = await host('three');
    for (const [version, hash] of published) {
      const found = third.find('net', version);
      expect(found?.modelSha256).toBe(hash);
      third.hurry(found!);
      await expect.poll(() => third.find('net', version)?.state, { timeout: 60_000 }).toEqual({ status: 'ready' });
      expect(sha256((await original(third, hash))!)).toBe(hash);
    }
    const contents = await open().contents();
    // The manifest and the head of each, and what all have.
    expect(contents.length).toBe(2 * published.size + 4);
    for (const each of [...hosts, third]) await each.close();
  });
});

test('a model that is cut and then refused leaves nothing behind', async () => {
  const store = await started();
  const path = await writeResNet(0);
  truncateSync(path, statSync(path).size - 1000);
  expect((await failureOf(publishFrom(store, path))).code).toBe('model-refused');
  expect([fixture.blobs(), fixture.staging()]).toEqual([[], []]);
  await store.close();
});
