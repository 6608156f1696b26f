/** What a model store finds after its process was killed: at every single disk operation, and at random moments. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  copyFileSync,
  linkSync,
  mkdirSync,
  promises,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { open as openFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ModelStoreOptions } from '../../src/host/store/index.ts';
import { moved } from '../../src/host/rollout/traffic.ts';
import type { ModelStore } from '../../src/host/types.ts';
import { compileProgram } from '../support/compile-program.ts';
import { writeOldDataFolder } from '../support/old-data-folder.ts';
import {
  checkedHere,
  headedModel,
  metadata,
  publish,
  sha256,
  storeFixture,
  streamOf,
  type StoreFixture,
} from './store-fixtures.ts';

let fixture: StoreFixture;

beforeEach(() => {
  fixture = storeFixture();
});

afterEach(() => {
  fixture[Symbol.dispose]();
});

/** Every file operation of the store that can change the disk is one of these. */
const changing = ['copyFile', 'link', 'mkdir', 'open', 'rename', 'rm', 'rmdir', 'unlink'] as const;

/** Runs `work` and calls `before` ahead of each disk operation in it; removes the hooks afterwards. */
async function withDiskHook(before: () => void, work: () => Promise<void>): Promise<void> {
  const probe = await openFile(join(fixture.root, 'probe'), 'w');
  const handles = Object.getPrototypeOf(probe) as Record<
    'writev' | 'writeFile' | 'sync',
    (...args: never[]) => unknown
  >;
  await probe.close();
  const undo: (() => void)[] = [];
  const hook = <Name extends string>(target: Record<Name, unknown>, name: Name): void => {
    const original = target[name] as (...args: unknown[]) => unknown;
    target[name] = function hooked(this: unknown, ...args: unknown[]) {
      before();
      return original.apply(this, args);
    };
    undo.push(() => {
      target[name] = original;
    });
  };
  for (const name of changing) hook(promises as Record<(typeof changing)[number], unknown>, name);
  for (const name of ['writev', 'writeFile', 'sync'] as const) hook(handles, name);
  syncBuiltinESMExports();
  try {
    await work();
  } finally {
    for (const restore of undo) restore();
    syncBuiltinESMExports();
  }
}

/** Copies a folder, with files that share an inode sharing one in the copy too. */
function copyLinked(from: string, to: string, copies = new Map<number, string>()): void {
  mkdirSync(to);
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [path, copy] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) {
      copyLinked(path, copy, copies);
      continue;
    }
    const { ino } = statSync(path);
    const known = copies.get(ino);
    if (known === undefined) copyFileSync(path, copy);
    else linkSync(known, copy);
    copies.set(ino, known ?? copy);
  }
}

const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .flatMap((entry) => (entry.isFile() ? [join(entry.parentPath, entry.name)] : []))
    .sort();

/** What a client could observe of a store, with the actual files on disk. */
function observed(store: ModelStore): string {
  const functions = store.names().map((name) => ({
    name,
    current: store.find(name)?.version,
    traffic: store.traffic(name),
    versions: store.versions(name).map(({ version, modelPath, modelSha256, state, settings }) => ({
      version,
      state,
      settings,
      modelSha256,
      onDisk: filesBelow(join(modelPath, '..')).map((path) => [
        relative(join(modelPath, '..'), path),
        sha256(readFileSync(path)),
      ]),
    })),
  }));
  return JSON.stringify(functions);
}

/** Leaks: blobs that neither a version nor a note of a client references. */
function leaks(dataDir: string): string[] {
  const notes = new Set(readdirSync(join(dataDir, 'blobs', 'put')));
  const blobs = join(dataDir, 'blobs', 'sha256');
  return [
    ...readdirSync(join(dataDir, 'staging')),
    ...readdirSync(blobs).filter((name) => !notes.has(name) && statSync(join(blobs, name)).nlink === 1),
  ];
}

async function publishBig(store: ModelStore, version: string): Promise<void> {
  const publication = await store.beginPublish('big', version);
  await publication.writeFile('model.onnx', streamOf(`graph ${version}`));
  await publication.writeFile('weights.bin', streamOf(`weights ${version}`));
  await publication.commit({});
}

async function publishTwo(store: ModelStore): Promise<void> {
  await publish(store, 'echo', 'zero', { version: '0' });
  await publish(store, 'echo', 'first', { version: '1' });
}

describe('a kill at any disk operation leaves the old state or the new', () => {
  test.each<[string, (store: ModelStore) => Promise<unknown>]>([
    ['a first publication', async (store) => await publish(store, 'fresh', 'model')],
    ['a third version', async (store) => await publish(store, 'echo', 'second')],
    ['a version with the bytes of another', async (store) => await publish(store, 'copy', 'first')],
    ['the removal of the current version', async (store) => await store.remove('echo', '1')],
    ['the removal of a function', async (store) => await store.remove('echo', undefined)],
    ['a change of settings', async (store) => await store.changeSettings('echo', undefined, { slo: '70ms' })],
    ['a division of calls', async (store) => await store.changeTraffic('echo', (now) => moved(now, '1', '0'))],
    ['a blob', async (store) => await store.putBlob(sha256('blob'), streamOf('blob'))],
  ])('%s', async (_what, operation) => {
    const { kills, wrong } = await killEverywhere({}, publishTwo, operation);
    expect(kills).toBeGreaterThan(4);
    expect(wrong).toEqual([]);
  });

  test('a version with external data', async () => {
    const { kills, wrong } = await killEverywhere(
      { validate: () => Promise.resolve({ metadata, externalFiles: ['weights.bin'] }) },
      async (store) => {
        await publishBig(store, '1');
      },
      async (store) => {
        await publishBig(store, '2');
      },
    );
    expect(kills).toBeGreaterThan(10);
    expect(wrong).toEqual([]);
  });
});

describe('a kill at any disk operation on models in chunks leaves the old state or the new', () => {
  const options = { validate: checkedHere, limits: { uploadBytesMax: 1e9 } };
  test.each<[string, (store: ModelStore) => Promise<unknown>]>([
    ['a version with another head', async (store) => await publishChunks(store, '2', 2)],
    ['a version with the bytes of another', async (store) => await publishChunks(store, '2', 1)],
    ['the removal of a version', async (store) => await store.remove('chunks', '1')],
  ])('%s', async (_what, operation) => {
    const { kills, wrong } = await killEverywhere(
      options,
      async (store) => {
        await publishChunks(store, '0', 0);
        await publishChunks(store, '1', 1);
      },
      operation,
    );
    expect(kills).toBeGreaterThan(4);
    expect(wrong).toEqual([]);
  });
});

async function publishChunks(store: ModelStore, version: string, head: number): Promise<void> {
  const publication = await store.beginPublish('chunks', version);
  await publication.writeFile('model.onnx', streamOf(headedModel(head)));
  await publication.commit({});
}

/**
 * Does `operation` once, and starts a store on the disk as each of its disk operations found it. `wrong` lists the
 * kills after which a store was neither as before nor as after, fell back to before, leaked, or could not go on.
 */
async function killEverywhere(
  options: Partial<ModelStoreOptions>,
  prepare: (store: ModelStore) => Promise<void>,
  operation: (store: ModelStore) => Promise<unknown>,
): Promise<{ kills: number; wrong: string[] }> {
  const store = fixture.again(options);
  await store.start();
  await prepare(store);
  const before = observed(store);
  const snapshots: string[] = [];
  mkdirSync(join(fixture.root, 'killed'));
  await withDiskHook(
    () => {
      // The disk in its current state is what a kill now would leave.
      const snapshot = join(fixture.root, 'killed', String(snapshots.length));
      copyLinked(fixture.dataDir, snapshot);
      snapshots.push(snapshot);
    },
    async () => {
      await operation(store);
    },
  );
  const after = observed(store);
  const wrong: string[] = [];
  let switched = false;
  for (const [kill, snapshot] of snapshots.entries()) {
    const found = fixture.again({ ...options, dataDir: snapshot });
    await found.start();
    await found.verified();
    const state = observed(found);
    if (state !== before && state !== after) wrong.push(`kill ${kill} left ${state}`);
    if (switched && state !== after) wrong.push(`kill ${kill} came after the switch, but undid it`);
    switched = state === after;
    for (const leak of leaks(snapshot)) wrong.push(`kill ${kill} left ${leak} behind`);
    if (options.validate === checkedHere) {
      await publishChunks(found, 'next', 7);
      continue;
    }
    const publication = await found.beginPublish('next', undefined);
    for (const file of ['model.onnx', ...(options.validate === undefined ? [] : ['weights.bin'])]) {
      await publication.writeFile(file, streamOf('works'));
    }
    if (!(await publication.commit({})).created) wrong.push(`kill ${kill} left a store that publishes nothing`);
  }
  return { kills: snapshots.length, wrong };
}

describe('a data folder of 0.1', () => {
  const halves = { shares: [1, 2].map((version) => ({ version: String(version), percent: 50 })), fallback: false };
  /** Also which version a header's value chose, which no folder says any more. */
  const traffic = { ...halves, headers: [{ name: 'x-beta', value: '1', version: '2' }] };
  const old = [
    { name: 'BERT', version: 'V1', sequence: 1, model: 'capitals', settings: { slo: '40ms' } },
    { name: 'bert', version: '1', sequence: 2, model: 'one' },
    { name: 'bert', version: '2', sequence: 5, model: 'two' },
    { name: 'twin', version: '1', sequence: 3, model: 'one' },
    { name: 'lost', version: '1', sequence: 4, model: 'lost' },
    { name: 'lost', version: '2', sequence: 6, model: 'kept' },
  ];
  const write = (): void => {
    writeOldDataFolder(fixture.dataDir, old, { bert: { settings: { 1: { slo: '1s' } }, traffic } });
    writeFileSync(join(fixture.dataDir, 'functions', 'lost', '1', 'version.json'), '{"half');
  };

  test('every version, setting and division of calls is there, and a lost record is told', async () => {
    write();
    const store = await fixture.restarted();
    expect(store.names()).toEqual(['BERT', 'bert', 'lost', 'twin']);
    const all = store.names().flatMap((name) => store.versions(name));
    expect(all.map(({ key, state, settings, publishedAtMs }) => [key, state, settings.sloMs, publishedAtMs])).toEqual([
      ['BERT@V1', { status: 'ready' }, 40, 1e12 + 1],
      ['bert@1', { status: 'ready' }, 1000, 1e12 + 2],
      ['bert@2', { status: 'ready' }, 200, 1e12 + 5],
      ['lost@1', { status: 'unavailable', reason: 'its record is lost' }, 200, 0],
      ['lost@2', { status: 'ready' }, 200, 1e12 + 6],
      ['twin@1', { status: 'ready' }, 200, 1e12 + 3],
    ]);
    expect(store.traffic('bert')).toEqual(halves);
    expect(readFileSync(store.find('BERT')!.modelPath, 'utf8')).toBe('capitals');
    expect(fixture.validated).toEqual([]);
    const backup = join(fixture.dataDir, 'backup-format-1');
    expect(readFileSync(join(backup, 'serving', 'bert.json'), 'utf8')).toContain('"slo":"1s"');
    expect(readFileSync(join(backup, 'functions', 'BERT', 'V1', 'version.json'), 'utf8')).toContain('"40ms"');
    expect((await publish(store, 'bert', 'three')).version.version).toBe('3');
    await store.remove('lost', '1');
    expect((await fixture.restarted()).versions('lost').map(({ version }) => version)).toEqual(['2']);
  });

  test('a kill at any disk operation of the migration changes nothing about what the next start finds', async () => {
    write();
    mkdirSync(join(fixture.root, 'killed'));
    const snapshots: string[] = [];
    let whole = '';
    await withDiskHook(
      () => {
        const snapshot = join(fixture.root, 'killed', String(snapshots.length));
        copyLinked(fixture.dataDir, snapshot);
        snapshots.push(snapshot);
      },
      async () => {
        whole = observed(await fixture.restarted());
      },
    );
    expect(snapshots.length).toBeGreaterThan(50);
    for (const dataDir of snapshots) {
      const store = fixture.again({ dataDir });
      await store.start();
      await store.verified();
      expect(observed(store)).toBe(whole);
      await store.close();
    }
  });
});

describe('kill -9 at random moments', () => {
  test('acknowledged publications are complete, and no half-written ones exist', async () => {
    const acknowledged = new Map<string, string | undefined>();
    const publisher = await compileProgram(join(import.meta.dirname, 'store-publisher.ts'));
    const delays = fc.sample(fc.integer({ min: 0, max: 60 }), 6);
    for (const [round, delayMs] of delays.entries()) {
      const child = spawn(process.execPath, [publisher, fixture.dataDir, fixture.functionsDir, String(round)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const closed = once(child, 'close');
      const lines = createInterface({ input: child.stdout });
      // In flight when the kill came: either outcome is right.
      const uncertain = new Map<string, string | undefined>();
      lines.on('line', (line) => {
        const [what, key, content] = line.split(' ');
        if (key === undefined) return;
        const outcome = content === '-' ? undefined : content;
        if (what === 'begin') uncertain.set(key, outcome);
        if (what === 'done') {
          uncertain.delete(key);
          acknowledged.set(key, outcome);
        }
      });
      const drained = once(lines, 'close');
      await Promise.race([once(lines, 'line'), closed]);
      expect(child.exitCode).toBeNull();
      await delay(delayMs);
      child.kill('SIGKILL');
      await Promise.all([closed, drained]);

      const store = fixture.again();
      await store.start();
      await store.verified();
      const found = new Map<string, string>();
      for (const name of store.names()) {
        for (const { key, modelPath, modelSha256, state } of store.versions(name)) {
          expect(state).toEqual({ status: 'ready' });
          expect(sha256(readFileSync(modelPath))).toBe(modelSha256);
          found.set(key, modelSha256);
        }
      }
      for (const [key, outcome] of uncertain) {
        expect([acknowledged.get(key), outcome]).toContain(found.get(key));
        acknowledged.set(key, found.get(key));
      }
      const expected = [...acknowledged].filter(([, content]) => content !== undefined);
      expect(Object.fromEntries(found)).toEqual(Object.fromEntries(expected));
      expect(leaks(fixture.dataDir)).toEqual([]);
      await store.close();
    }
    expect(acknowledged.size).toBeGreaterThan(0);
  });
});
