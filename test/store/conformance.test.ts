/** One suite for every kind of store: entries with conditions, tombstones, lists, the marker, and content. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Bucket } from '../../src/store/bucket.ts';
import {
  ChangedElsewhere,
  EntryUnreadable,
  fetchContent,
  FolderStore,
  StoreAway,
  type Store,
  type StoredEntry,
} from '../../src/store/index.ts';
import { S3Server, s3Keys } from '../support/s3-server.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-store-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const neverAborted = new AbortController().signal;
const bodyOf = (entry: StoredEntry | undefined): unknown => entry?.envelope.body;

async function fileOf(bytes: Buffer): Promise<{ path: string; sha256: string; bytes: number }> {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const path = join(folder, `source-${sha256}`);
  await writeFile(path, bytes);
  return { path, sha256, bytes: bytes.byteLength };
}

describe.each(['folder', 'bucket'] as const)('a store in a %s', (kind) => {
  let s3: S3Server;
  let count = 0;
  let store: Store;
  let again: () => Store;
  beforeAll(async () => {
    s3 = await S3Server.start();
  });
  afterAll(async () => {
    await s3[Symbol.asyncDispose]();
  });
  beforeEach(() => {
    const place = `${kind}-${count++}`;
    again = () =>
      kind === 'folder'
        ? new FolderStore(join(folder, place))
        : new Bucket({ url: `${s3.url}/${place}`, region: 'us-east-1', ...s3Keys, retryMs: 1 });
    store = again();
  });
  afterEach(() => {
    s3.pageSize = 1000;
  });

  test('an entry is created once, changed by whoever read it last, and read by everyone', async () => {
    expect(await store.read('bert')).toBeUndefined();
    const first = await store.write('bert', { versions: ['1'] }, undefined);
    await expect(store.write('bert', { versions: ['x'] }, undefined)).rejects.toThrow(ChangedElsewhere);
    const second = await again().write('bert', { versions: ['1', '2'] }, first);
    await expect(store.write('bert', { versions: ['1', 'x'] }, first)).rejects.toThrow(
      "function 'bert' was changed by another publisher",
    );
    expect(await store.read('bert')).toEqual(second);
    expect(bodyOf(await again().read('bert'))).toEqual({ versions: ['1', '2'] });
  });

  test('a removed function leaves a tombstone, and the name is free again', async () => {
    const first = await store.write('bert', { versions: ['1'] }, undefined);
    const removed = await store.write('bert', undefined, first);
    expect(bodyOf(removed)).toBeNull();
    expect([...(await store.list()).keys()]).toEqual(['bert']);
    await expect(store.write('bert', { versions: ['x'] }, first)).rejects.toThrow(ChangedElsewhere);
    const back = await store.write('bert', { versions: ['1'] }, removed);
    expect(new Set([first.tag, removed.tag, back.tag]).size).toBe(3);
  });

  test('fields that this release does not know are kept', async () => {
    const first = await store.write('bert', { versions: [], later: { chunks: [1, 2] } }, undefined);
    const newer = { ...first, envelope: { ...first.envelope, alsoLater: 7 } };
    await store.write('bert', { ...first.envelope.body, versions: ['1'] }, newer);
    const found = await store.read('bert');
    expect(found?.envelope).toMatchObject({ alsoLater: 7, body: { versions: ['1'], later: { chunks: [1, 2] } } });
  });

  test('names that differ in capitals only are two functions, and none is one of the names of the store', async () => {
    const names = ['BERT', 'bert', 'Bert', 'changed', 'entries', 'blobs', '1.json', 'probe-1', '__proto__', 'a.json'];
    for (const name of names) await store.write(name, { name }, undefined);
    for (const name of names) expect(bodyOf(await store.read(name))).toEqual({ name });
    s3.pageSize = 3;
    const listed = await store.list();
    expect([...listed.keys()].toSorted()).toEqual(names.toSorted());
    for (const [name, tag] of listed) expect((await store.read(name))?.tag).toBe(tag);
  });

  test('the marker is another one after each write', async () => {
    const markers = [await store.marker()];
    let entry: StoredEntry | undefined;
    for (const at of [0, 1, 2]) {
      entry = await store.write('bert', { at }, entry);
      markers.push(await again().marker());
    }
    expect(new Set(markers).size).toBe(4);
  });

  test('an entry may be changed a hundred times', async () => {
    let entry: StoredEntry | undefined;
    for (let at = 0; at < 100; at++) entry = await store.write('bert', { at }, entry);
    expect(bodyOf(await store.read('bert'))).toEqual({ at: 99 });
    const revisions = await readdir(join(folder, `${kind}-${count - 1}`, 'entries', 'bert')).catch(() => []);
    // A reader that has listed a revision can still open it; old ones go a few at a time.
    expect(revisions.length).toBeGreaterThanOrEqual(kind === 'folder' ? 5 : 0);
    expect(revisions.length).toBeLessThanOrEqual(kind === 'folder' ? 9 : 0);
  });

  test('content is stored once under its hash, and comes back in ranges with its hash checked', async () => {
    const file = await fileOf(randomBytes(9 * 2 ** 20 + 5));
    expect(await store.has(file)).toBe(false);
    await store.put(file, file.path);
    await store.put(file, join(folder, 'not there'));
    expect(await again().has(file)).toBe(true);
    expect(await store.has({ ...file, bytes: 1 })).toBe(false);
    const target = join(folder, `back-${count}`);
    await fetchContent(again().source(neverAborted), file, target);
    expect((await readFile(target)).equals(await readFile(file.path))).toBe(true);
    const missing = await fileOf(Buffer.from(`missing ${count}`));
    await expect(fetchContent(store.source(neverAborted), missing, target)).rejects.toThrow(/ENOENT|NoSuchKey/);
  });
});

describe('a folder', () => {
  test('a writer that slept through others is told so, even when its revision has been removed', async () => {
    const store = new FolderStore(join(folder, 'sleeper'));
    const first = await store.write('bert', { at: 0 }, undefined);
    let entry = first;
    for (let at = 1; at < 20; at++) entry = await store.write('bert', { at }, entry);
    await expect(store.write('bert', { at: 'late' }, first)).rejects.toThrow(ChangedElsewhere);
    await expect(store.write('bert', { at: 'late' }, undefined)).rejects.toThrow(ChangedElsewhere);
    expect(bodyOf(await store.read('bert'))).toEqual({ at: 19 });
    await store.write('bert', { at: 20 }, entry);
  });

  test('that has gone is not made again, and goes on when it is back', async () => {
    const place = join(folder, 'mounted');
    const store = new FolderStore(place);
    const first = await store.write('bert', { at: 1 }, undefined);
    const content = await fileOf(Buffer.from('not mounted'));
    await rename(place, `${place}-away`);
    const refused = async (): Promise<void> => {
      for (const write of [
        () => store.write('gpt2', {}, undefined),
        () => store.write('bert', { at: 2 }, first),
        () => store.put(content, content.path),
        () => store.probe(),
      ])
        await expect(write()).rejects.toThrow(StoreAway);
    };
    await refused();
    await expect(readdir(place)).rejects.toThrow('ENOENT');
    await mkdir(place);
    await refused();
    expect(await readdir(place)).toEqual([]);
    await rmdir(place);
    await rename(`${place}-away`, place);
    await store.put(content, content.path);
    await store.write('bert', { at: 2 }, first);
  });

  test('what a killed writer left is no entry', async () => {
    const store = new FolderStore(join(folder, 'killed'));
    await mkdir(join(folder, 'killed', 'entries', 'bert'), { recursive: true });
    await writeFile(join(folder, 'killed', 'entries', 'bert', '.abc'), '{"half');
    expect(await store.read('bert')).toBeUndefined();
    expect(await store.list()).toEqual(new Map());
    await store.write('bert', {}, undefined);
  });

  test('a damaged entry is told, and one of a newer release names its format', async () => {
    const store = new FolderStore(join(folder, 'damaged'));
    await store.write('bert', {}, undefined);
    const path = join(folder, 'damaged', 'entries', 'bert', '1.json');
    const text = await readFile(path, 'utf8');
    await writeFile(path, text.slice(0, 20));
    await expect(store.read('bert')).rejects.toThrow(EntryUnreadable);
    const unreadable: unknown = await store.read('bert').catch((error: unknown) => error);
    await writeFile(path, text.replace('"format":1', '"format":2'));
    await expect(store.read('bert')).rejects.toThrow(
      "the entry of function 'bert' has format 2, and this release reads format 1",
    );
    const over = await store.write('bert', { at: 2 }, unreadable as EntryUnreadable);
    expect(await store.read('bert')).toEqual(over);
  });
});

describe('a bucket', () => {
  let s3: S3Server;
  beforeEach(async () => {
    s3 = await S3Server.start();
  });
  afterEach(async () => {
    await s3[Symbol.asyncDispose]();
  });
  const bucket = (): Bucket => new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, retryMs: 1 });

  test('one that heeds conditions passes the probe, which leaves nothing behind', async () => {
    await bucket().probe();
    expect(s3.keys()).toEqual([]);
  });

  test.each([
    [['if-match'] as const, 'If-Match'],
    [['if-none-match'] as const, 'If-None-Match'],
    [['if-match', 'if-none-match'] as const, 'If-None-Match and If-Match'],
  ])('one that ignores %s is refused by the probe', async (ignores, named) => {
    s3.ignores = ignores;
    await expect(bucket().probe()).rejects.toThrow(`ignores ${named} of a write: of two publishers at once`);
  });

  test('one that is away is told as that, and not as one that ignores conditions', async () => {
    await s3.stop();
    await expect(bucket().probe()).rejects.toThrow(StoreAway);
    await expect(bucket().read('bert')).rejects.toThrow(`the bucket at ${s3.url} was not reached`);
    await expect(bucket().write('bert', {}, undefined)).rejects.toThrow(StoreAway);
  });

  test.each(['lost-request', 'lost-reply', 'late', 'conflict', 'busy'] as const)(
    'a write that meets the fault %s once is made once',
    async (fault) => {
      let left = 1;
      s3.faultOf = (key) => (key.startsWith('entries/') && left-- > 0 ? fault : undefined);
      const first = await bucket().write('bert', { at: 1 }, undefined);
      left = 1;
      const second = await bucket().write('bert', { at: 2 }, first);
      expect(await bucket().read('bert')).toEqual(second);
      expect(second.envelope.earlier).toEqual([first.envelope.nonce]);
    },
  );

  test('a write that was carried out before its time-out, and then changed by another, is known as a success', async () => {
    const first = await bucket().write('bert', { by: ['one'] }, undefined);
    let overtaken: Promise<StoredEntry> | undefined;
    s3.faultOf = (key) => {
      if (key !== 'entries/bert.json' || overtaken !== undefined) return undefined;
      overtaken = bucket()
        .read('bert')
        .then((entry) => bucket().write('bert', { by: ['one', 'two', 'three'] }, entry));
      return 'lost-reply';
    };
    const slow = new Bucket({ url: s3.url, region: 'us-east-1', ...s3Keys, retryMs: 300 });
    const second = await slow.write('bert', { by: ['one', 'two'] }, first);
    expect(second).toEqual(await overtaken);
  });
});
