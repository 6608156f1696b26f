import { existsSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  failureOf,
  metadata,
  publish,
  sha256,
  storeFixture,
  streamOf,
  type StoreFixture,
} from '../../../test/host/store-fixtures.ts';
import { HostError } from '../errors.ts';
import type { ModelStore, RegistryChange } from '../types.ts';
import type { DiskModelStore } from './store.ts';

let fixture: StoreFixture;
let store: ModelStore;

beforeEach(async () => {
  fixture = storeFixture();
  store = fixture.again();
  await store.start();
});

afterEach(() => {
  fixture[Symbol.dispose]();
});

const versionsOf = (of: ModelStore, name: string): string[] => of.versions(name).map(({ version }) => version);

async function publishFiles(contents: Readonly<Record<string, string>>, external: readonly string[]) {
  store = fixture.again({ validate: () => Promise.resolve({ metadata, externalFiles: external }) });
  await store.start();
  const publication = await store.beginPublish('big', undefined);
  for (const [name, content] of Object.entries(contents)) await publication.writeFile(name, streamOf(content));
  return await publication.commit({});
}

test('what workers need of a function in a folder is copied once: it is there after restarts, for a day', async () => {
  const path = join(fixture.root, 'model.onnx');
  writeFileSync(path, 'model of a folder');
  const file = { name: 'model.onnx', sha256: sha256('model of a folder'), bytes: 17 };
  const blob = join(fixture.dataDir, 'blobs', 'sha256', file.sha256);
  const disk = store as DiskModelStore;
  await disk.put(file, path);
  const { ino } = statSync(blob);
  const second = fixture.again();
  await second.start();
  await second.put(file, path);
  expect([statSync(blob).ino, readFileSync(blob, 'utf8'), fixture.staging()]).toEqual([ino, 'model of a folder', []]);
  const dayAgo = Date.now() / 1000 - 25 * 60 * 60;
  utimesSync(join(fixture.dataDir, 'blobs', 'put', file.sha256), dayAgo, dayAgo);
  await second.put(file, path);
  await fixture.again().start();
  expect(fixture.blobs()).toEqual([file.sha256]);
  utimesSync(join(fixture.dataDir, 'blobs', 'put', file.sha256), dayAgo, dayAgo);
  await fixture.again().start();
  expect(fixture.blobs()).toEqual([]);
});

describe('publishing', () => {
  test('a published model is on disk under its hash and in the registry, and staging is empty', async () => {
    const { version, created } = await publish(store, 'echo', 'model one', { settings: { slo: '40ms' } });
    expect(created).toBe(true);
    expect(version).toMatchObject({
      key: 'echo@1',
      source: 'upload',
      modelSha256: sha256('model one'),
      modelBytes: 9,
      metadata,
      state: { status: 'ready' },
    });
    expect(version.settings.sloMs).toBe(40);
    expect(readFileSync(version.modelPath, 'utf8')).toBe('model one');
    expect(store.find('echo')).toBe(version);
    expect(store.names()).toEqual(['echo']);
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([sha256('model one')]);
  });

  test('nothing is visible before commit has resolved', async () => {
    const publication = await store.beginPublish('echo', undefined);
    await publication.writeFile('model.onnx', streamOf('model'));
    expect(store.names()).toEqual([]);
    await publication.abort();
    expect(store.names()).toEqual([]);
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([]);
  });

  test('versions count up, and the most recently published is current', async () => {
    await publish(store, 'echo', 'a');
    await publish(store, 'echo', 'b', { version: '7' });
    await publish(store, 'echo', 'c');
    await publish(store, 'echo', 'd', { version: 'beta' });
    await publish(store, 'echo', 'e', { version: '3' });
    expect(versionsOf(store, 'echo')).toEqual(['1', '7', '8', 'beta', '3']);
    expect(store.find('echo')?.version).toBe('3');
    expect(versionsOf(await fixture.restarted(), 'echo')).toEqual(['1', '7', '8', 'beta', '3']);
  });

  test('the same bytes and settings are the same version, with and without saying which', async () => {
    const first = await publish(store, 'echo', 'a', { settings: { slo: '1s' } });
    const again = await publish(store, 'echo', 'a', { settings: { slo: 1000 } });
    const said = await publish(store, 'echo', 'a', { version: '1', settings: { slo: '1000ms' } });
    expect(again).toEqual({ version: first.version, created: false });
    expect(said).toEqual({ version: first.version, created: false });
    expect(fixture.staging()).toEqual([]);
  });

  test('other settings without a version make a new version of the same bytes', async () => {
    await publish(store, 'echo', 'a');
    const { version, created } = await publish(store, 'echo', 'a', { settings: { slo: '1s' } });
    expect(created).toBe(true);
    expect(version.version).toBe('2');
    expect(fixture.blobs()).toHaveLength(1);
    expect(statSync(version.modelPath).nlink).toBe(3);
    expect(fixture.validated).toHaveLength(1);
  });

  test('a new version keeps the settings that its publication does not mention', async () => {
    await publish(store, 'echo', 'a', { settings: { slo: '300ms', batching: { max: 4, delay: 5 }, pinned: true } });
    const { version } = await publish(store, 'echo', 'b', { settings: { batching: { delay: 2 } } });
    expect(version).toMatchObject({ version: '2', settings: { sloMs: 300, pinned: true } });
    expect(version.settings.batching).toEqual({ batchMax: 4, delayMs: 2 });
    expect((await fixture.restarted()).find('echo')?.settings).toEqual(version.settings);
  });

  test('a version that is taken is refused for other bytes and for other settings', async () => {
    const { version } = await publish(store, 'echo', 'a', { version: '1' });
    const bytes = await failureOf(publish(store, 'echo', 'b', { version: '1' }));
    const settings = await failureOf(publish(store, 'echo', 'a', { version: '1', settings: { slo: '1s' } }));
    expect([bytes.code, settings.code]).toEqual(['version-exists', 'version-exists']);
    expect(store.find('echo')).toBe(version);
    expect(readFileSync(version.modelPath, 'utf8')).toBe('a');
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([sha256('a')]);
  });

  test('of two uploads of one version at a time the second is refused at once', async () => {
    const first = await store.beginPublish('echo', '1');
    expect((await failureOf(store.beginPublish('echo', '1'))).code).toBe('publish-in-progress');
    const other = await store.beginPublish('echo', '2');
    await first.abort();
    await other.abort();
    await (await store.beginPublish('echo', '1')).abort();
  });

  test('a version in the settings counts like one in the path, and may not contradict it', async () => {
    const { version } = await publish(store, 'echo', 'a', { settings: { version: 5 } });
    expect(version.version).toBe('5');
    const failure = await failureOf(publish(store, 'echo', 'b', { version: '6', settings: { version: '7' } }));
    expect(failure.code).toBe('bad-settings');
    const first = await store.beginPublish('echo', '8');
    expect((await failureOf(publish(store, 'echo', 'c', { settings: { version: '8' } }))).code).toBe(
      'publish-in-progress',
    );
    await first.abort();
  });

  test('many uploads at once without a version each get one of their own', async () => {
    const contents = Array.from({ length: 12 }, (_, index) => `model ${index}`);
    const published = await Promise.all(contents.map(async (content) => await publish(store, 'echo', content)));
    expect(published.every(({ created }) => created)).toBe(true);
    expect(versionsOf(store, 'echo').sort((left, right) => Number(left) - Number(right))).toEqual(
      contents.map((_, index) => String(index + 1)),
    );
    for (const [index, { version }] of published.entries()) {
      expect(readFileSync(version.modelPath, 'utf8')).toBe(contents[index]);
    }
    const after = await fixture.restarted();
    expect(after.versions('echo')).toEqual(store.versions('echo'));
  });

  test('an automatic version steps around one whose upload is under way', async () => {
    const slow = await store.beginPublish('echo', '1');
    expect((await publish(store, 'echo', 'quick')).version.version).toBe('2');
    await slow.writeFile('model.onnx', streamOf('slow'));
    const { version, created } = await slow.commit({});
    expect([version.version, created]).toEqual(['1', true]);
    expect(store.find('echo')?.version).toBe('1');
  });

  test('a stream that breaks off leaves nothing, and its error reaches the caller', async () => {
    const publication = await store.beginPublish('echo', '1');
    const gone = new Error('socket hang up');
    await expect(publication.writeFile('model.onnx', streamOf('half a mod', gone))).rejects.toBe(gone);
    expect((await failureOf(publication.commit({}))).code).toBe('bad-request');
    await publication.abort();
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([]);
    expect((await publish(store, 'echo', 'whole', { version: '1' })).created).toBe(true);
  });

  test('an upload over the limit is refused while it streams, not after', async () => {
    store = fixture.again({ limits: { uploadBytesMax: 1000 } });
    await store.start();
    let sent = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        sent += 100;
        yield await Promise.resolve(new Uint8Array(100));
      }
    }
    const publication = await store.beginPublish('echo', undefined);
    const failure = await failureOf(publication.writeFile('model.onnx', endless()));
    expect(failure.code).toBe('body-too-large');
    expect(failure.message).toContain('1000 bytes');
    expect(sent).toBe(1100);
    await publication.abort();
    expect(fixture.staging()).toEqual([]);
  });

  test('the limit holds for all files of an upload together', async () => {
    store = fixture.again({ limits: { uploadBytesMax: 1000 } });
    await store.start();
    const publication = await store.beginPublish('echo', undefined);
    await publication.writeFile('model.onnx', streamOf(new Uint8Array(600)));
    const failure = await failureOf(publication.writeFile('weights.bin', streamOf(new Uint8Array(600))));
    expect(failure.code).toBe('body-too-large');
    await publication.abort();
  });

  test('a refused model leaves the old version serving', async () => {
    const { version } = await publish(store, 'echo', 'good');
    store = fixture.again({
      validate: () => Promise.reject(new HostError('model-refused', 'the model was refused: no outputs')),
    });
    await store.start();
    expect((await failureOf(publish(store, 'echo', 'bad'))).code).toBe('model-refused');
    expect(store.find('echo')).toEqual(version);
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([sha256('good')]);
  });

  test('bad settings are refused before the model is opened', async () => {
    expect((await failureOf(publish(store, 'echo', 'a', { settings: { slow: 1 } }))).code).toBe('bad-settings');
    expect(fixture.validated).toEqual([]);
    expect(fixture.staging()).toEqual([]);
  });

  test('an upload without a model is refused', async () => {
    const publication = await store.beginPublish('echo', undefined);
    await publication.writeFile('weights.bin', streamOf('w'));
    expect((await failureOf(publication.commit({}))).message).toBe("the upload brings no file 'model.onnx'");
  });

  test.each([
    ['../up', undefined],
    ['a/b', undefined],
    ['.echo', undefined],
    ['echo', '../1'],
    ['echo', ''],
    ['..', '..'],
  ])('function %j version %j is no name', async (name, version) => {
    expect((await failureOf(store.beginPublish(name, version))).code).toBe('bad-name');
    expect((await failureOf(store.remove(name, version))).code).toBe('bad-name');
  });

  test('names that differ only in capitals are functions of their own, and no folder is the other in small letters', async () => {
    for (const name of ['bert', 'BERT', 'Bert']) await publish(store, name, `the model of ${name}`);
    await store.remove('Bert', undefined);
    const again = await fixture.restarted();
    expect(again.names()).toEqual(['BERT', 'bert']);
    for (const name of again.names()) {
      expect(readFileSync(again.find(name)!.modelPath, 'utf8')).toBe(`the model of ${name}`);
    }
    const folders = again.names().map((name) => again.find(name)!.modelPath.toLowerCase());
    expect(new Set(folders).size).toBe(2);
  });

  test.each(['BERT_FP16', '_private', '__proto__', 'ends-', 'ends.', 'a.b', '9', 'x'.repeat(128)])(
    'the name %s is published, found after a restart, and removed',
    async (name) => {
      await publish(store, name, 'a', { settings: { slo: '1s' } });
      await store.changeSettings(name, undefined, { slo: '2s' });
      const again = await fixture.restarted();
      expect(again.names()).toEqual([name]);
      expect(again.find(name)).toMatchObject({ state: { status: 'ready' }, settings: { sloMs: 2000 } });
      await again.remove(name, undefined);
      expect(again.names()).toEqual([]);
    },
  );

  test.each(['../model.onnx', '/tmp/x', 'a/../../b', ''])('no upload writes a file %j', async (filename) => {
    const publication = await store.beginPublish('echo', undefined);
    expect((await failureOf(publication.writeFile(filename, streamOf('x')))).code).toBe('bad-request');
    await publication.abort();
    expect(readdirSync(fixture.root).sort()).toEqual(['data', 'functions']);
  });

  test('a file and a folder of one name, or a file twice, is refused', async () => {
    const publication = await store.beginPublish('echo', undefined);
    await publication.writeFile('weights', streamOf('w'));
    expect((await failureOf(publication.writeFile('weights', streamOf('w')))).message).toContain('twice');
    expect((await failureOf(publication.writeFile('weights/0', streamOf('w')))).code).toBe('bad-request');
    await publication.abort();
    expect(fixture.staging()).toEqual([]);
  });
});

describe('external data', () => {
  const files = { 'model.onnx': 'graph', 'weights.bin': 'aaaa', 'more/weights.bin': 'bbbb' };

  test('every file lies where the model names it, after a restart too', async () => {
    const { version } = await publishFiles(files, ['weights.bin', 'more/weights.bin']);
    expect(version.modelBytes).toBe(13);
    const found = (await fixture.restarted()).find('big');
    expect(found).toEqual(version);
    expect(readFileSync(join(version.modelPath, '..', 'more', 'weights.bin'), 'utf8')).toBe('bbbb');
  });

  test('a file that the model names and the upload lacks is refused by name', async () => {
    const failure = await failureOf(publishFiles(files, ['weights.bin', 'more/weights.bin', 'bias.bin']));
    expect(failure.code).toBe('model-refused');
    expect(failure.message).toContain("'bias.bin', which was not uploaded");
  });

  test('a file that the model does not name is refused by name', async () => {
    const failure = await failureOf(publishFiles(files, ['weights.bin']));
    expect(failure.code).toBe('bad-request');
    expect(failure.message).toContain("'more/weights.bin', which the model does not name");
    expect(fixture.staging()).toEqual([]);
  });

  test('other weights under the same model are another version', async () => {
    const first = await publishFiles(files, ['weights.bin', 'more/weights.bin']);
    const second = await publishFiles({ ...files, 'weights.bin': 'cccc' }, ['weights.bin', 'more/weights.bin']);
    expect([first.version.version, second.version.version]).toEqual(['1', '2']);
    expect(second.created).toBe(true);
  });
});

describe('blobs', () => {
  const content = 'a blob';
  const hex = sha256(content);

  test('a blob becomes the model of a function without being sent again', async () => {
    await store.putBlob(hex, streamOf(content));
    expect(store.hasBlob(hex)).toBe(true);
    const publication = await store.beginPublish('echo', undefined);
    await publication.useBlob('model.onnx', hex);
    const { version } = await publication.commit({ model: `sha256:${hex}` });
    expect(readFileSync(version.modelPath, 'utf8')).toBe(content);
    expect(statSync(version.modelPath).ino).toBe(statSync(join(fixture.dataDir, 'blobs/sha256', hex)).ino);
  });

  test('the bytes of another hash are refused, and kept nowhere', async () => {
    const failure = await failureOf(store.putBlob(hex, streamOf('other')));
    expect(failure.code).toBe('digest-mismatch');
    expect(failure.message).toContain(sha256('other'));
    expect(store.hasBlob(hex)).toBe(false);
    expect([...fixture.staging(), ...fixture.blobs()]).toEqual([]);
  });

  test('an invalid hash is refused without a look at the disk', async () => {
    expect(store.hasBlob('../../host.lock')).toBe(false);
    expect((await failureOf(store.putBlob('../x', streamOf(content)))).code).toBe('bad-request');
    const publication = await store.beginPublish('echo', undefined);
    expect((await failureOf(publication.useBlob('model.onnx', hex.toUpperCase()))).code).toBe('bad-request');
    await publication.abort();
  });

  test('an unknown blob is refused', async () => {
    const publication = await store.beginPublish('echo', undefined);
    expect((await failureOf(publication.useBlob('model.onnx', hex))).code).toBe('unknown-blob');
    await publication.abort();
  });

  test('a blob that nothing refers to outlives a restart for a day, and no longer', async () => {
    await store.putBlob(hex, streamOf(content));
    expect((await fixture.restarted()).hasBlob(hex)).toBe(true);
    const longAgo = new Date(Date.now() - 25 * 60 * 60 * 1000);
    utimesSync(join(fixture.dataDir, 'blobs/put', hex), longAgo, longAgo);
    expect((await fixture.restarted()).hasBlob(hex)).toBe(false);
    expect(readdirSync(join(fixture.dataDir, 'blobs/put'))).toEqual([]);
  });

  test('a blob that was sent twice is one file, and concurrent sends do no harm', async () => {
    await Promise.all(
      [1, 2, 3].map(async () => {
        await store.putBlob(hex, streamOf(content));
      }),
    );
    expect(fixture.blobs()).toEqual([hex]);
    expect(fixture.staging()).toEqual([]);
  });
});

describe('removing', () => {
  test('removing the current version makes the one before it current, and deletes its files', async () => {
    const first = await publish(store, 'echo', 'a');
    const second = await publish(store, 'echo', 'b');
    await store.remove('echo', '2');
    expect(store.find('echo')).toBe(first.version);
    expect(existsSync(second.version.modelPath)).toBe(false);
    expect(fixture.blobs()).toEqual([sha256('a')]);
    expect(fixture.staging()).toEqual([]);
    expect(versionsOf(await fixture.restarted(), 'echo')).toEqual(['1']);
  });

  test('removing without a version removes all, and leaves bytes that others use', async () => {
    await publish(store, 'echo', 'a');
    await publish(store, 'echo', 'b');
    await publish(store, 'other', 'b');
    await store.remove('echo', undefined);
    expect(store.names()).toEqual(['other']);
    expect(fixture.blobs()).toEqual([sha256('b')]);
    expect(readdirSync(join(fixture.dataDir, 'functions'))).toEqual(['other']);
    expect(readdirSync(join(fixture.dataDir, 'validated'))).toEqual([`${sha256('b')}.json`]);
  });

  test('a missing function or version cannot be removed', async () => {
    await publish(store, 'echo', 'a');
    expect((await failureOf(store.remove('nobody', undefined))).code).toBe('unknown-function');
    expect((await failureOf(store.remove('echo', '2'))).code).toBe('unknown-version');
  });

  test('a version whose files were deleted by hand can be removed', async () => {
    await publish(store, 'echo', 'a');
    await publish(store, 'echo', 'b');
    rmSync(join(fixture.dataDir, 'functions', 'echo'), { recursive: true });
    await store.remove('echo', '2');
    await store.remove('echo', '1');
    expect(store.names()).toEqual([]);
    expect(fixture.blobs()).toEqual([]);
  });

  test('a removed version may be published again', async () => {
    await publish(store, 'echo', 'a', { version: '1' });
    await store.remove('echo', '1');
    expect((await publish(store, 'echo', 'b', { version: '1' })).created).toBe(true);
  });
});

describe('the registry', () => {
  test('listeners hear of every change, and one that throws does not stop the others', async () => {
    const changes: RegistryChange[] = [];
    store.onChange(() => {
      throw new Error('a bad listener');
    });
    store.onChange((change) => {
      changes.push(change);
    });
    const { version } = await publish(store, 'echo', 'a');
    await publish(store, 'echo', 'a');
    await store.remove('echo', '1');
    expect(changes).toEqual([
      { before: undefined, after: version },
      { before: version, after: undefined },
    ]);
    expect(fixture.log.filter(({ message }) => message === 'a registry listener failed')).toHaveLength(2);
  });

  test('a store that was not started refuses work instead of hanging', async () => {
    await expect(fixture.again().beginPublish('echo', undefined)).rejects.toThrow('before it was started');
  });
});
