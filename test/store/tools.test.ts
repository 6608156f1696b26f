/** `turntable store`: functions with handlers put into a store, data folders imported, leftovers removed. */
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Entries } from '../../src/host/store/entries.ts';
import { manifestOf } from '../../src/host/store/version-record.ts';
import { PoolTaker, sealManifest } from '../../src/queue/index.ts';
import { FolderStore } from '../../src/store/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { turntable } from '../cli/command.ts';
import { turntableHere } from '../cli/in-process.ts';
import { headedModel } from '../host/store-fixtures.ts';
import { poolLimits } from '../support/cpu-pools.ts';
import { ask, call, json, patient, publish, shaOf, shown, untilPublished } from '../support/fleet-calls.ts';
import { writeReluModel } from '../support/models.ts';
import { writeOldDataFolder } from '../support/old-data-folder.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { runOnnxRuntime } from '../support/run-program.ts';
import { silentLog } from '../support/silent-log.ts';

let folder: string;
let store: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-store-tools-'));
  store = join(folder, 'store');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const start = async (flags: Record<string, string> = {}): Promise<ReluHost> =>
  await startReluHost([], { flags: { 'store.place': store, 'gpu.use': 'off', 'cpu.cores': '1', ...flags } });
const contents = (): string[] => readdirSync(join(store, 'blobs', 'sha256'));
const shaOfText = (text: string): string => createHash('sha256').update(text).digest('hex');

/** A function that doubles what its model answers. @param code of its handler */
async function writeFunction(name: string, code: string): Promise<string> {
  const place = join(folder, 'made', name);
  mkdirSync(place, { recursive: true });
  await writeReluModel(place);
  const settings = { model: 'relu.onnx', handler: 'handler.ts', slo: '5s', description: 'doubles' };
  writeFileSync(join(place, 'function.json'), JSON.stringify(settings));
  writeFileSync(join(place, 'handler.ts'), code);
  return place;
}

const doubling = `
import { factor } from './factor.ts';
export function preprocess(request) {
  return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: Float32Array.from(JSON.parse(request.text())) }];
}
export function postprocess([{ data }]) {
  return [...data].map((value) => factor * value);
}
`;

test('a function with a handler is put into the store by a command, and runs at a host that has no folder of it', async () => {
  const place = await writeFunction('doubler', doubling);
  writeFileSync(join(place, 'factor.ts'), 'export const factor = 2;');
  await using host = await start();
  const put = await turntableHere(['store', 'put', place, '--store', store]);
  expect(put).toEqual({ exitCode: 0, stdout: `doubler@1: published, in the folder ${store}\n`, stderr: '' });
  const again = await turntableHere(['store', 'put', place, '--store', store]);
  expect(again.stdout).toContain('doubler@1: the store has it already');
  const answer = await ask(host, 'POST', '/function/doubler', '[-1, 2, -3, 4]');
  expect([answer.status, answer.text]).toEqual([200, '[0,4,0,8]']);
  expect(await shown(host, 'doubler')).toMatchObject({ description: 'doubles', slo: '5s' });
  // An edit is a new version, and the host hears of it.
  writeFileSync(join(place, 'factor.ts'), 'export const factor = 3;');
  expect((await turntableHere(['store', 'put', place, '--store', store])).stdout).toContain('doubler@2: published');
  await vi.waitFor(async () => {
    expect((await ask(host, 'POST', '/function/doubler', '[-1, 2, -3, 4]')).text).toBe('[0,6,0,12]');
  }, patient);
});

test('a handler that needs what only this machine has is refused with the reason, and so is a folder without a function', async () => {
  const beside = await writeFunction('beside', `${doubling}\nexport const here = import.meta.url;`);
  writeFileSync(join(beside, 'factor.ts'), 'export const factor = 2;');
  const refused = await turntableHere(['store', 'put', beside, '--store', store]);
  expect([refused.exitCode === 0, refused.stderr]).toEqual([
    false,
    expect.stringContaining('its handler looks for files beside itself'),
  ]);
  const none = await turntableHere(['store', 'put', folder, '--store', store]);
  expect([none.exitCode === 0, none.stderr]).toEqual([false, expect.stringContaining('has no function.json')]);
  const nowhere = await turntableHere(['store', 'put', beside]);
  expect(nowhere.stderr).toContain('name the store with --store');
});

test('no upload brings a handler, under whatever name the model knows it', async () => {
  await using host = await start();
  const form = new FormData();
  form.set('model', new Blob([new Uint8Array(1)]), 'model.onnx');
  form.set('.Handler.mjs', new Blob(['code']), '.Handler.mjs');
  const reply = await fetch(`${host.url}/functions/sneaky`, { method: 'PUT', body: form });
  expect([reply.status, await reply.text()]).toEqual([400, expect.stringContaining("the store's own")]);
});

test('the data folder of a host is imported: versions, settings and traffic are there, and its host starts on the store', async () => {
  const dataDir = join(folder, 'data');
  const flags = { dataDir, 'gpu.use': 'off', 'cpu.cores': '1' };
  {
    await using alone = await startReluHost([], { flags });
    await untilPublished(alone, 'BERT', 2);
    await untilPublished(alone, 'bert', 5);
    expect((await publish(alone, 'BERT', 3, 'traffic=0')).status).toBe(201);
    await ask(alone, 'PATCH', '/functions/BERT/versions/1', '{"slo": "77ms"}');
    // Another process: what a folder is in use by is one.
    const inUse = await turntable(['store', 'import', dataDir, '--store', store]);
    expect([inUse.exitCode === 0, inUse.stderr]).toEqual([false, expect.stringContaining('is in use by another host')]);
  }
  const done = await turntableHere(['store', 'import', dataDir, '--store', store]);
  expect(done).toEqual({
    exitCode: 0,
    stdout: `the folder ${store}: 3 versions imported, 0 there already\n`,
    stderr: '',
  });
  const twice = await turntableHere(['store', 'import', dataDir, '--store', store]);
  expect(twice.stdout).toContain('0 versions imported, 3 there already');
  await using same = await start({ dataDir });
  await using other = await start();
  for (const host of [same, other]) {
    expect(await shown(host, 'BERT')).toMatchObject({ version: '1', versions: ['1', '2'], slo: '77ms' });
    expect(await call(host, 'BERT')).toEqual([2, 4, 6, 8]);
    expect(await call(host, 'BERT/versions/2')).toEqual([3, 6, 9, 12]);
    expect(await call(host, 'bert')).toEqual([5, 10, 15, 20]);
  }
});

// Models of 4.3 MB that differ in 82 kB of them.

const wide = Float32Array.from({ length: 256 }, (_, at) => Math.cos(at));
const bytesIn = (place: string): number =>
  readdirSync(place).reduce((sum, name) => sum + statSync(join(place, name)).size, 0);

/** Where a model with a head lies, and what ONNX Runtime answers of it. */
async function headed(head: number): Promise<{ readonly model: Uint8Array; readonly answer: number[] }> {
  const place = join(folder, `head-${head}`);
  mkdirSync(place, { recursive: true });
  const model = headedModel(head);
  writeFileSync(join(place, 'model.onnx'), model);
  const [y] = await runOnnxRuntime(join(place, 'model.onnx'), [tensorOf('x', 'FP32', [1, 256], wide)]);
  return { model, answer: [...new Float32Array(y!.data.slice().buffer)] };
}

test('a function in chunks is put into the store by a command, and with another handler takes the handler alone', async () => {
  const { model, answer } = await headed(1);
  const place = join(folder, 'made', 'headed');
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, 'model.onnx'), model);
  writeFileSync(join(place, 'function.json'), '{"model": "model.onnx", "handler": "handler.ts", "slo": "60s"}');
  const write = (sign: string): void =>
    writeFileSync(
      join(place, 'handler.ts'),
      `export const preprocess = (request) => [{ name: 'x', datatype: 'FP32', shape: [1, 256], data: Float32Array.from(JSON.parse(request.text())) }];
       export const postprocess = ([{ data }]) => Array.from(data, (value) => ${sign}value);`,
    );
  write('');
  expect((await turntableHere(['store', 'put', place, '--store', store])).stdout).toContain('headed@1: published');
  const blobs = join(store, 'blobs', 'sha256');
  expect([readdirSync(blobs).length > 3, bytesIn(blobs) < 1.02 * model.byteLength]).toEqual([true, true]);
  const before = bytesIn(blobs);
  write('-');
  expect((await turntableHere(['store', 'put', place, '--store', store])).stdout).toContain('headed@2: published');
  expect(bytesIn(blobs) - before).toBeLessThan(10_000);
  await using host = await start();
  const given = JSON.stringify([...wide]);
  expect(JSON.parse((await ask(host, 'POST', '/function/headed', given)).text)).toEqual(answer.map((each) => -each));
  expect(JSON.parse((await ask(host, 'POST', '/function/headed/versions/1', given)).text)).toEqual(answer);
});

test('versions in chunks are imported once, and hosts and workers fetch the chunks that they lack', async () => {
  const [one, two] = [await headed(1), await headed(2)];
  const dataDir = join(folder, 'data');
  {
    await using alone = await startReluHost([], { flags: { dataDir, 'gpu.use': 'off', 'cpu.cores': '1' } });
    for (const { model } of [one, two])
      expect((await ask(alone, 'PUT', '/functions/net?slo=60s', Buffer.from(model))).status).toBe(201);
    const { disk } = await json<{
      disk: { residents: { functionName: string; bytes: number; sharedBytes: number }[] };
    }>(alone, '/api/memory');
    const shown = disk.residents.filter(({ functionName }) => functionName === 'net');
    expect(shown).toHaveLength(2);
    for (const { bytes, sharedBytes } of shown)
      expect([bytes > 80_000 && bytes < 120_000, sharedBytes > 4_190_000]).toEqual([true, true]);
  }
  const done = await turntableHere(['store', 'import', dataDir, '--store', store]);
  expect([done.exitCode, done.stdout]).toEqual([0, `the folder ${store}: 2 versions imported, 0 there already\n`]);
  expect(bytesIn(join(store, 'blobs', 'sha256'))).toBeLessThan(1.05 * one.model.byteLength);
  await using host = await start();
  const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 256], data: [...wide] }] });
  for (const [version, { answer }] of [one, two].entries()) {
    const reply = await ask(host, 'POST', `/v2/models/net/versions/${version + 1}/infer`, body);
    const { outputs } = JSON.parse(reply.text) as { outputs: { data: number[] }[] };
    expect(outputs[0]?.data.map(Math.fround)).toEqual(answer);
  }
  const entries = new Entries(new FolderStore(store), silentLog);
  await entries.start();
  const { batchDelayMs, handlerTimeoutMs, loadTimeoutMs, inferTimeoutMs } = poolLimits;
  const manifests = entries.get('net').versions.map((record) =>
    sealManifest({
      key: `net@${record.version}`,
      files: [record.files[0]!],
      chunks: manifestOf(record)!,
      limits: { batchMax: 1, batchDelayMs, handlerTimeoutMs, loadTimeoutMs, inferTimeoutMs },
    }),
  );
  const pools = { blankInstances: 0, memoryBytes: 1e9, log: () => undefined };
  const taker = new PoolTaker({ name: 'lab-7', cores: 1, pools, store: new FolderStore(store), models: join(folder, 'worker'), modelBytesMax: 1e8, threads: 1, queueMax: 10, idleMs: 3_600_000, log: silentLog }); // prettier-ignore
  await taker.start();
  taker.learn(manifests);
  for (const [version, { answer }] of [one, two].entries()) {
    const tensors = [tensorOf('x', 'FP32', [1, 256], wide)];
    const { output } = await taker.run(manifests[version]!.revision, { kind: 'tensors', tensors }, {});
    const [y] = output.kind === 'tensors' ? output.tensors : [];
    expect([...new Float32Array(Uint8Array.from(y!.data).buffer)]).toEqual(answer);
  }
  // What both have is counted, and lies there, once.
  expect([taker.held, taker.cacheBytes < 1.05 * one.model.byteLength]).toEqual([2, true]);
  await taker.stop();
});

const version = (name: string, number: string, sequence: number) => ({
  name,
  version: number,
  sequence,
  model: `${name} ${number}`,
});

test('three folders of a fleet of 0.1 are imported: each has some versions, and what the fleet had removed stays removed', async () => {
  const traffic = { shares: [{ version: '1', share: 100 }], headers: [] };
  const folders = ['a', 'b', 'c'].map((each) => join(folder, each));
  writeOldDataFolder(folders[0]!, [version('Both', '1', 1), version('gone', '1', 2)], {
    Both: { settings: { 1: { slo: '77ms' } }, traffic },
  });
  writeOldDataFolder(folders[1]!, [version('Both', '1', 1), version('Both', '2', 3)], { Both: { traffic } });
  writeOldDataFolder(folders[2]!, [version('only', '1', 4)], {});
  const copies = join(folders[2]!, 'fleet', 'lab');
  mkdirSync(copies, { recursive: true });
  writeFileSync(join(copies, 'gone.json'), JSON.stringify({ revision: 2, ancestors: [], body: null }));
  const { stdout, exitCode } = await turntableHere(['store', 'import', ...folders, '--store', store, '--json']);
  const report = JSON.parse(stdout) as { imported: string[]; known: string[]; left: string[] };
  expect([exitCode, report.imported.toSorted(), report.left]).toEqual([0, ['Both@1', 'Both@2', 'only@1'], []]);
  const [revision] = readdirSync(join(store, 'entries', 'both!1'));
  expect(revision).toBe('1.json');
  expect(contents().toSorted()).toEqual(['Both 1', 'Both 2', 'only 1'].map(shaOfText).toSorted());
  // Another model under a version that the store has is left out, and the command fails.
  const other = join(folder, 'd');
  writeOldDataFolder(other, [{ ...version('only', '1', 1), model: 'another' }, version('new', '1', 2)], {});
  const second = await turntableHere(['store', 'import', other, '--store', store]);
  expect([second.exitCode, second.stdout]).toEqual([
    1,
    expect.stringContaining('left out: only@1: the store has another model under this version'),
  ]);
});

test('a version whose files are damaged in each folder is left out by name', async () => {
  const dataDir = join(folder, 'data');
  writeOldDataFolder(dataDir, [{ name: 'hurt', version: '1', sequence: 1, model: 'right' }], {});
  writeFileSync(join(dataDir, 'functions', 'hurt', '1', 'model.onnx'), 'wrong');
  const alone = await turntableHere(['store', 'import', dataDir, '--store', store]);
  expect([alone.exitCode, alone.stdout]).toEqual([
    1,
    expect.stringContaining("left out: hurt@1: no folder has its file 'model.onnx' undamaged"),
  ]);
  const sound = join(folder, 'sound');
  writeOldDataFolder(sound, [{ name: 'hurt', version: '1', sequence: 1, model: 'right' }], {});
  cpSync(dataDir, join(folder, 'copy'), { recursive: true });
  const both = await turntableHere(['store', 'import', join(folder, 'copy'), sound, '--store', store]);
  expect([both.exitCode, both.stdout]).toEqual([0, expect.stringContaining('1 version imported')]);
});

test('what no entry names is removed after its grace, and everything else stays', async () => {
  await using host = await start();
  await untilPublished(host, 'kept', 2);
  await untilPublished(host, 'removed', 3);
  expect((await ask(host, 'DELETE', '/functions/removed')).status).toBe(204);
  const collect = ['store', 'fsck', '--collect', '--store', store];
  expect((await turntableHere(collect)).stdout).toContain('0 files removed');
  const dayAgo = new Date(Date.now() - 25 * 3_600_000);
  for (const sha256 of contents()) utimesSync(join(store, 'blobs', 'sha256', sha256), dayAgo, dayAgo);
  expect((await turntableHere(collect)).stdout).toContain('1 file removed');
  expect(contents()).toEqual([await shaOf(2)]);
  expect((await turntableHere([...collect, '--grace', '0s'])).stdout).toContain('0 files removed');
  // An entry that cannot be read may name anything.
  writeFileSync(join(store, 'entries', 'removed', '99.json'), 'damaged');
  const unread = await turntableHere([...collect, '--grace', '0s']);
  expect([unread.exitCode === 0, unread.stderr]).toEqual([false, expect.stringContaining('cannot be read: removed')]);
  expect(contents()).toEqual([await shaOf(2)]);
});
