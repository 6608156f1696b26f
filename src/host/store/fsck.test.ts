import { existsSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  metadata,
  publish,
  sha256,
  storeFixture,
  streamOf,
  type StoreFixture,
} from '../../../test/host/store-fixtures.ts';
import { checkStore } from './fsck.ts';
import type { DiskModelStore } from './store.ts';

let fixture: StoreFixture;
let store: DiskModelStore;

beforeEach(async () => {
  fixture = storeFixture();
  store = fixture.again();
  await store.start();
  await publish(store, 'echo', 'model');
  await publish(store, 'twin', 'model');
  await publish(store, 'other', 'fine');
});
afterEach(() => {
  fixture[Symbol.dispose]();
});

const modelOf = (name: string): string => join(fixture.dataDir, 'functions', name, '1', 'model.onnx');

test('an intact store is read once for each file, beside the host that uses it', async () => {
  expect(await checkStore(fixture.dataDir)).toEqual({ versions: 3, files: 2, bytes: 9, problems: [] });
});

test('a flipped byte is found in every version and blob that shares it, and nothing is written', async () => {
  writeFileSync(modelOf('echo'), 'mOdel');
  const { problems } = await checkStore(fixture.dataDir);
  expect(problems.map(({ path, repaired }) => [path, repaired])).toEqual([
    ['functions/echo/1/model.onnx', undefined],
    ['functions/twin/1/model.onnx', undefined],
    [`blobs/sha256/${sha256('model')}`, undefined],
  ]);
  expect(readFileSync(modelOf('twin'), 'utf8')).toBe('mOdel');
});

test('a folder that is missing, or no data folder, is not called sound, and not made into one', async () => {
  for (const folder of [join(fixture.dataDir, 'no'), join(fixture.dataDir, 'blobs')]) {
    for (const repair of [false, true])
      await expect(checkStore(folder, { repair })).rejects.toThrow(`${folder} is no data folder`);
    expect(existsSync(join(folder, 'functions'))).toBe(false);
  }
});

test('a missing file and a damaged entry are reported by version', async () => {
  rmSync(modelOf('echo'));
  writeFileSync(join(fixture.dataDir, 'entries', 'other', '1.json'), '{"half');
  const { problems } = await checkStore(fixture.dataDir);
  expect(problems).toMatchObject([
    { function: 'echo@1', reason: 'it is missing: publish it again' },
    { function: 'other@1', reason: 'the entry of its function is lost: remove it, or publish it again' },
  ]);
});

test('repair uses the intact copy of a hash and removes damaged blobs', async () => {
  // A separate copy, as on a disk without hard links.
  unlinkSync(modelOf('echo'));
  writeFileSync(modelOf('echo'), 'mOdel');
  await store.putBlob(sha256('spare'), streamOf('spare'));
  const spare = join(fixture.dataDir, 'blobs/sha256', sha256('spare'));
  writeFileSync(spare, 'spArE');
  await store.close();
  const { problems } = await checkStore(fixture.dataDir, { repair: true });
  expect(problems.map(({ repaired }) => repaired)).toEqual(['replaced by the blob of its hash', 'removed']);
  expect(readFileSync(modelOf('echo'), 'utf8')).toBe('model');
  expect(existsSync(spare)).toBe(false);
  expect((await checkStore(fixture.dataDir)).problems).toEqual([]);
});

// The host makes files beside these ones.
test.each([
  'w',
  'w'.repeat(250),
  'w'.repeat(255),
  '.w',
  'w.tmp',
  'parts/w',
  'host.lock',
  '.chunks',
  '.layout',
  'weights/0',
])('files named %s and with any ending are kept apart when they are shared, healed and repaired', async (name) => {
  const endings = ['', '.link', '.part', '.tmp', '.whole', '~'].filter((each) => (name + each).length <= 255);
  const files = Object.fromEntries(endings.map((ending) => [name + ending, `of '${ending}'`]));
  await store.close();
  using own = storeFixture({ validate: () => Promise.resolve({ metadata, externalFiles: Object.keys(files) }) });
  const pathIn = (of: string, file: string): string => join(own.dataDir, 'functions', of, '1', file);
  const publishIn = async (to: DiskModelStore, of: string): Promise<void> => {
    const publication = await to.beginPublish(of, undefined);
    for (const [file, text] of Object.entries({ ...files, 'model.onnx': 'model' }))
      await publication.writeFile(file, streamOf(text));
    await publication.commit({});
  };
  const expectWhole = (...functions: string[]): void => {
    for (const of of functions) {
      for (const [file, text] of Object.entries(files)) expect(readFileSync(pathIn(of, file), 'utf8')).toBe(text);
    }
    expect(own.staging()).toEqual([]);
  };
  const damage = (of: string): void => {
    unlinkSync(pathIn(of, name));
    writeFileSync(pathIn(of, name), 'damaged');
  };
  const first = own.again();
  await first.start();
  await publishIn(first, 'one');
  await publishIn(first, 'two');
  expectWhole('one', 'two');
  damage('one');
  // The upload has the bytes that the disk has lost.
  await first.close();
  const second = await own.restarted();
  await publishIn(second, 'three');
  await second.close();
  expectWhole('one', 'two', 'three');
  damage('two');
  const { problems } = await checkStore(own.dataDir, { repair: true });
  expect(problems.map(({ repaired }) => repaired)).toEqual(['replaced by the blob of its hash']);
  expectWhole('one', 'two', 'three');
});
