/** Damaged files of published functions: found, fetched again from the store, and never served. */
import { mkdtempSync, openSync, readFileSync, renameSync, rmSync, writeSync, closeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { checkStore } from '../../src/host/index.ts';
import { FolderStore } from '../../src/store/index.ts';
import { writeReluModel } from '../support/models.ts';
import { startReluHost } from '../support/relu-host.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-healing-'));
const dataDir = join(folder, 'data');
const modelFile = join(dataDir, 'functions', 'shared', '1', 'model.onnx');
const flags = { dataDir, 'cpu.profiling': 'off' };
let model: Buffer;
const store = join(folder, 'store');

beforeAll(async () => {
  await writeReluModel(folder);
  model = readFileSync(join(folder, 'relu.onnx'));
  await using host = await startReluHost([], { flags: { ...flags, 'store.place': store } });
  await publish(host.url);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function publish(url: string): Promise<void> {
  expect((await fetch(`${url}/functions/shared`, { method: 'PUT', body: new Uint8Array(model) })).status).toBe(201);
}

/** Damages the published model on disk. */
function flipFourBytes(): void {
  const file = openSync(modelFile, 'r+');
  const at = Math.floor(model.byteLength / 2);
  writeSync(
    file,
    model.subarray(at, at + 4).map((byte) => byte ^ 0xff),
    0,
    4,
    at,
  );
  closeSync(file);
  expect(readFileSync(modelFile).equals(model)).toBe(false);
}

/** The answer, once it is known whether the function can serve. */
async function call(url: string): Promise<[number, unknown]> {
  const reply = await fetch(`${url}/function/shared`, { method: 'POST', body: '{"input":[[-1,2,-3,4]]}' });
  return [reply.status, ((await reply.json()) as { output?: unknown }).output];
}

/** The function's state after the damage; there is no event for it over HTTP. */
async function settledState(url: string, isThere: (state: string) => boolean): Promise<string> {
  const look = async (): Promise<string | undefined> => {
    const { state } = (await (await fetch(`${url}/functions/shared`)).json()) as { state: string };
    return isThere(state) ? state : undefined;
  };
  return await vi.waitUntil(look, { interval: 10 });
}

test('four flipped bytes are fetched again from the store, and the answer is right', async () => {
  flipFourBytes();
  await using healed = await startReluHost([], { flags: { ...flags, 'store.place': store } });
  await settledState(healed.url, (state) => state === 'ready');
  expect(readFileSync(modelFile).equals(model)).toBe(true);
  expect(await call(healed.url)).toEqual([200, [[0, 2, 0, 4]]]);
});

test('fsck fetches files without an intact copy here, and says from where', async () => {
  flipFourBytes();
  const shared = new FolderStore(store);
  const { problems } = await checkStore(dataDir, { repair: true, shared });
  expect(problems).toMatchObject([{ function: 'shared@1', repaired: `fetched from the folder ${store}` }]);
  expect(readFileSync(modelFile).equals(model)).toBe(true);
  expect((await checkStore(dataDir, { shared })).problems).toEqual([]);
});

test('while the store is away the damaged function stays unavailable, and never answers wrongly', async () => {
  flipFourBytes();
  renameSync(store, `${store}-away`);
  await using alone = await startReluHost([], { flags: { ...flags, 'store.place': store } });
  expect(await settledState(alone.url, (state) => state !== 'validating' && state !== 'ready')).toBe('unavailable');
  expect((await call(alone.url))[0]).toBe(503);
  const { sha256 } = (await (await fetch(`${alone.url}/functions/shared`)).json()) as { sha256: string };
  expect((await fetch(`${alone.url}/blobs/sha256:${sha256}`)).status).toBe(404);
});
