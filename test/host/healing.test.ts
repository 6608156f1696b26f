/**
 * A host with damaged bytes on its disk gets them from another host, by their hash; so does `turntable store fsck --heal`.
 */
import { mkdtempSync, openSync, readFileSync, rmSync, writeSync, closeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkStore } from '../../src/host/index.ts';
import { writeReluModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-healing-'));
const dataDir = join(folder, 'data');
const modelFile = join(dataDir, 'functions', 'shared', '1', 'model.onnx');
const flags = { dataDir, 'cpu.profiling': 'off' };
let peer: ReluHost;
let model: Buffer;

beforeAll(async () => {
  await writeReluModel(folder);
  model = readFileSync(join(folder, 'relu.onnx'));
  peer = await startReluHost([], { flags: { 'cpu.profiling': 'off' } });
  await publish(peer.url);
  await using damaged = await startReluHost([], { flags });
  await publish(damaged.url);
});
afterAll(async () => {
  await peer?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

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
  for (;;) {
    const { state } = (await (await fetch(`${url}/functions/shared`)).json()) as { state: string };
    if (isThere(state)) return state;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test('four flipped bytes are fetched again from a host that has them, and the answer is right', async () => {
  flipFourBytes();
  await using healed = await startReluHost([], { flags: { ...flags, healFrom: peer.url } });
  await settledState(healed.url, (state) => state === 'ready');
  expect(readFileSync(modelFile).equals(model)).toBe(true);
  expect(await call(healed.url)).toEqual([200, [[0, 2, 0, 4]]]);
});

test('without such a host the function stays unavailable, and never answers wrongly', async () => {
  flipFourBytes();
  await using alone = await startReluHost([], { flags: { ...flags, healFrom: 'http://127.0.0.1:9' } });
  expect(await settledState(alone.url, (state) => state !== 'validating' && state !== 'ready')).toBe('unavailable');
  expect((await call(alone.url))[0]).toBe(503);
});

test('fsck fetches files without an intact copy here, and says from where', async () => {
  const healFrom = { hostUrls: ['http://127.0.0.1:9', peer.url] };
  const { problems } = await checkStore(dataDir, { repair: true, healFrom });
  expect(problems).toMatchObject([{ function: 'shared@1', repaired: `fetched from ${peer.url}` }]);
  expect(readFileSync(modelFile).equals(model)).toBe(true);
  expect((await checkStore(dataDir)).problems).toEqual([]);
});

test('a host serves no file that is damaged itself', async () => {
  flipFourBytes();
  const { sha256 } = (await (await fetch(`${peer.url}/functions/shared`)).json()) as { sha256: string };
  await using alone = await startReluHost([], { flags });
  expect((await fetch(`${peer.url}/blobs/sha256:${sha256}`)).status).toBe(200);
  expect((await fetch(`${alone.url}/blobs/sha256:${sha256}`)).status).toBe(404);
});
