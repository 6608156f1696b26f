/** What a store finds on the disk when it starts: versions, leftovers of a kill, and corrupted bytes. */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  failureOf,
  publish,
  sha256,
  storeFixture,
  streamOf,
  type StoreFixture,
} from '../../../test/host/store-fixtures.ts';
import type { ModelStore } from '../types.ts';

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

/** Other bytes under the same name, size and inode, as on a failing disk. */
const flip = (path: string): void => {
  writeFileSync(path, readFileSync(path, 'utf8').replace('o', 'O'));
};

/** The newest revision of a function's entry. */
function entryOf(name: string): string {
  const folder = join(fixture.dataDir, 'entries', name);
  const newest = Math.max(...readdirSync(folder).map((file) => Number.parseInt(file, 10)));
  return join(folder, `${newest}.json`);
}

describe('after a restart', () => {
  test('every version is as it was, without a validation', async () => {
    await publish(store, 'echo', 'a', { settings: { slo: '40ms', batching: { max: 4 } } });
    await publish(store, 'other', 'b');
    const again = await fixture.restarted();
    expect(again.names()).toEqual(['echo', 'other']);
    for (const name of again.names()) expect(again.versions(name)).toEqual(store.versions(name));
    expect(fixture.validated).toHaveLength(2);
  });

  test('the shadow and the header rules of an older version are dropped with a line each in the log, and the division stays', async () => {
    await publish(store, 'echo', 'a');
    await publish(store, 'echo', 'b');
    const wanted = { shares: [{ version: '1', percent: 100 }], fallback: true, before: '2' };
    const headers = [{ name: 'x-canary', value: 'yes', version: '2' }];
    const traffic = { ...wanted, shadow: { version: '2', percent: 10 }, headers };
    const path = entryOf('echo');
    const envelope = JSON.parse(readFileSync(path, 'utf8')) as { body: object };
    const body = { ...envelope.body, settings: { 2: { slo: '1s' } }, traffic };
    writeFileSync(path, JSON.stringify({ ...envelope, body }));
    const again = await fixture.restarted();
    expect(again.traffic('echo')).toEqual(wanted);
    expect([again.find('echo')?.version, again.find('echo', '2')?.settings.sloMs]).toEqual(['1', 1000]);
    expect(fixture.log.filter(({ message }) => message.includes('no longer'))).toEqual([
      {
        level: 'warn',
        fields: { function: 'echo', shadow: traffic.shadow },
        message: 'a shadow no longer gets copies of calls',
      },
      { level: 'warn', fields: { function: 'echo', headers }, message: 'headers no longer choose a version' },
    ]);
    // The next change writes the record without them.
    await again.changeTraffic('echo', (now) => ({ ...now, fallback: false }));
    const written = readFileSync(entryOf('echo'), 'utf8');
    expect(JSON.parse(written)).toMatchObject({ body: { traffic: { ...wanted, fallback: false } } });
    expect(written).not.toMatch(/shadow|canary/);
  });

  test('half-written uploads and unknown files are gone', async () => {
    await publish(store, 'echo', 'a');
    const half = await store.beginPublish('echo', undefined);
    await half.writeFile('model.onnx', streamOf('half'));
    writeFileSync(join(fixture.dataDir, 'blobs/sha256', sha256('orphan')), 'orphan');
    writeFileSync(join(fixture.dataDir, 'blobs/sha256', 'rubbish'), 'x');
    mkdirSync(join(fixture.dataDir, 'functions', 'empty'));
    const again = await fixture.restarted();
    expect(fixture.staging()).toEqual([]);
    expect(fixture.blobs()).toEqual([sha256('a')]);
    expect(again.names()).toEqual(['echo']);
    expect(existsSync(join(fixture.dataDir, 'functions', 'empty'))).toBe(false);
  });

  test.each([
    [
      'a missing file',
      (path: string) => {
        rmSync(path);
      },
      "its file 'model.onnx' is missing",
    ],
    [
      'a short file',
      (path: string) => {
        truncateSync(path, 2);
      },
      "its file 'model.onnx' has 2 bytes, but 5 were published",
    ],
    [
      'a missing entry',
      () => {
        rmSync(join(entryOf('echo'), '..'), { recursive: true });
      },
      "the entry of its function is lost: see 'entries'",
    ],
    [
      'a damaged entry',
      () => {
        writeFileSync(entryOf('echo'), '{"format":1');
      },
      "the entry of its function is lost: see 'entries'",
    ],
  ])('%s makes the version unavailable with the reason, and the others serve on', async (_what, harm, reason) => {
    const { version } = await publish(store, 'echo', 'model', { version: 'v1' });
    await publish(store, 'other', 'fine');
    harm(version.modelPath);
    const again = await fixture.restarted();
    expect(again.find('echo')).toMatchObject({ key: 'echo@v1', state: { status: 'unavailable', reason } });
    expect(again.find('other')?.state.status).toBe('ready');
    expect(fixture.log).toContainEqual(
      expect.objectContaining({ level: 'error', fields: { function: 'echo@v1', reason } }),
    );

    const { created } = await publish(again, 'echo', 'model', { version: 'v1' });
    expect(created).toBe(true);
    expect(again.find('echo')?.state).toEqual({ status: 'ready' });
    expect((await fixture.restarted()).find('echo')?.state).toEqual({ status: 'ready' });
  });

  test('a flipped byte in a stored model makes its version unavailable before it is used', async () => {
    const { version } = await publish(store, 'echo', 'model');
    await publish(store, 'other', 'fine');
    flip(version.modelPath);
    const again = fixture.again();
    await again.start();
    expect(again.find('echo')?.state).toEqual({ status: 'validating' });
    await again.verified();
    const reason = `its stored file 'model.onnx' is damaged: its bytes do not have the sha256 ${sha256('model')}; publish it again`;
    expect(again.find('echo')?.state).toEqual({ status: 'unavailable', reason });
    expect(again.find('other')?.state).toEqual({ status: 'ready' });
  });

  test('publishing the right bytes again, under any name, heals every version that shares them', async () => {
    const { version } = await publish(store, 'echo', 'model');
    const twin = await publish(store, 'twin', 'model');
    flip(version.modelPath);
    const again = await fixture.restarted();
    expect(again.find('twin')?.state.status).toBe('unavailable');

    await publish(again, 'third', 'model');
    for (const name of ['echo', 'twin', 'third']) {
      expect(again.find(name)?.state).toEqual({ status: 'ready' });
      expect(readFileSync(again.find(name)!.modelPath, 'utf8')).toBe('model');
    }
    expect(again.find('twin')?.version).toBe(twin.version.version);
    expect(fixture.blobs()).toEqual([sha256('model')]);
  });

  test('a version whose folder is gone gets its files from the blobs', async () => {
    const { version } = await publish(store, 'echo', 'model');
    rmSync(join(version.modelPath, '..', '..'), { recursive: true });
    const again = await fixture.restarted();
    expect(again.find('echo')).toEqual(version);
    expect(readFileSync(version.modelPath, 'utf8')).toBe('model');
  });

  test('a damaged blob cannot be published, and may be uploaded again', async () => {
    await store.putBlob(sha256('model'), streamOf('model'));
    flip(join(fixture.dataDir, 'blobs/sha256', sha256('model')));
    const again = await fixture.restarted();
    const publication = await again.beginPublish('echo', undefined);
    expect(await failureOf(publication.useBlob('model.onnx', sha256('model')))).toMatchObject({ code: 'unknown-blob' });
    expect(again.hasBlob(sha256('model'))).toBe(false);
    await again.putBlob(sha256('model'), streamOf('model'));
    const second = await again.beginPublish('echo', undefined);
    await second.useBlob('model.onnx', sha256('model'));
    expect((await second.commit({})).version.state).toEqual({ status: 'ready' });
  });

  test('a version that a caller waits for is verified before smaller ones', async () => {
    for (const name of ['a', 'bb', 'ccc']) await publish(store, name, `model ${name}`);
    await publish(store, 'large', 'a model of more bytes');
    const again = fixture.again();
    const order: string[] = [];
    again.onChange(({ before, after }) => {
      if (before?.state.status === 'validating' && after?.state.status === 'ready') order.push(after.name);
    });
    const started = again.start();
    again.onChange(({ after }) => {
      if (after?.name === 'large' && after.state.status === 'validating') again.hurry(after);
    });
    await started;
    await again.verified();
    expect(order).toEqual(['large', 'a', 'bb', 'ccc']);
  });

  test.each([
    ['a link to itself', (path: string) => symlinkSync(path, path)],
    ['a folder', (path: string) => mkdirSync(path)],
    ['a device', (path: string) => symlinkSync('/dev/zero', path)],
  ])('%s in the place of a file takes its version alone', async (_, put) => {
    const { version } = await publish(store, 'echo', 'model');
    await publish(store, 'other', 'fine');
    rmSync(version.modelPath);
    put(version.modelPath);
    const again = await fixture.restarted();
    expect(again.find('other')?.state).toEqual({ status: 'ready' });
    expect(again.find('echo')?.state).toEqual({
      status: 'unavailable',
      reason: expect.stringMatching(/^its file 'model\.onnx' (cannot be read: ELOOP|is missing)$/) as string,
    });
  });

  test('a damaged version can be removed', async () => {
    const { version } = await publish(store, 'echo', 'model');
    expect(existsSync(version.modelPath)).toBe(true);
    writeFileSync(entryOf('echo'), '{"half');
    const again = await fixture.restarted();
    await again.remove('echo', undefined);
    expect(again.names()).toEqual([]);
    expect((await fixture.restarted()).names()).toEqual([]);
  });

  test('the host defaults that a function did not override follow the configuration', async () => {
    await publish(store, 'echo', 'a', { settings: { slo: '40ms' } });
    const again = fixture.again({ defaults: { sloMs: 1, handlerMs: 2, loadMs: 3, inferMs: 4 } });
    await again.start();
    expect(again.find('echo')?.settings).toMatchObject({
      sloMs: 40,
      timeouts: { handlerMs: 2, loadMs: 3, inferMs: 4 },
    });
  });

  test('a data folder that a live process uses is refused', async () => {
    const lock = join(fixture.dataDir, 'host.lock');
    const mine = JSON.parse(readFileSync(lock, 'utf8')) as { pid: number; started: string };
    // The parent of this process is alive; the lock names its real identity.
    const boot = mine.started.split(' ')[0] ?? '';
    const fields = readFileSync(`/proc/${process.ppid}/stat`, 'utf8');
    const ticks = fields.slice(fields.lastIndexOf(')') + 2).split(' ')[19] ?? '';
    writeFileSync(lock, JSON.stringify({ pid: process.ppid, started: `${boot} ${ticks}` }));
    const refused = fixture.again();
    await expect(refused.start()).rejects.toThrow(`in use by another host (process ${process.ppid})`);
    await refused.close();
    expect(existsSync(lock)).toBe(true);
    // Another process has the same id by now: the lock is stale.
    writeFileSync(lock, JSON.stringify({ pid: process.ppid, started: `${boot} 1` }));
    await fixture.again().start();
    writeFileSync(lock, 'rubbish');
    const last = fixture.again();
    await last.start();
    await last.close();
    expect(readFileSync(lock, 'utf8')).toBe('{}');
  });
});
