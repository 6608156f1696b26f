/** What a worker offers for functions whose files it cannot get. */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ModelCache, PoolTaker, sealManifest } from '../../src/queue/index.ts';
import { FolderStore } from '../../src/store/index.ts';

const model = Buffer.from('the model');
const manifest = sealManifest({
  key: 'f@1',
  files: [{ name: 'model.onnx', sha256: createHash('sha256').update(model).digest('hex'), bytes: model.byteLength }],
  limits: { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1, loadTimeoutMs: 1, inferTimeoutMs: 1 },
});
const { revision } = manifest;

/** Runs nothing. */
const pools = { blankInstances: 0, memoryBytes: 1e9, log: () => undefined };

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-taker-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

test('a function that cannot be fetched is not offered, retried after growing pauses, and offered once it is here', async () => {
  let nowMs = 1000;
  const said = new EventEmitter();
  let requests = 0;
  const store = new FolderStore(join(folder, 'store'));
  const source = store.source(new AbortController().signal);
  vi.spyOn(store, 'source').mockReturnValue({
    ...source,
    open: async (sha256, range) => {
      requests++;
      return await source.open(sha256, range);
    },
  });
  const cache = new ModelCache({
    folder: join(folder, 'models'),
    store,
    bytesMax: 1000,
    inUse: () => false,
    onEvict: () => Promise.resolve(),
  });
  await cache.start();
  const taker = new PoolTaker({
    name: 'lab-7',
    cores: 1,
    pools,
    cache,
    threads: 1,
    queueMax: 1,
    idleMs: 1000,
    log: (message, fields) => said.emit(message.startsWith('fetched') ? 'fetched' : 'failed', fields),
    nowMs: () => nowMs,
  });
  const failed = async (): Promise<unknown> => (await once(said, 'failed'))[0] as unknown;

  const first = failed();
  taker.learn([manifest]);
  expect(taker.capacity(revision)).toMatchObject({ held: false }); // It may still come.
  expect(await first).toMatchObject({
    function: 'f@1',
    pauseMs: 5000,
    reason: expect.stringContaining('has no file') as string,
  });
  expect(taker.capacity(revision)).toBeUndefined();
  await expect(taker.run(revision, { kind: 'tensors', tensors: [] }, {})).rejects.toMatchObject({ code: 'stopping' });

  nowMs += 4999;
  taker.refresh();
  const requestsInPause = requests;
  nowMs += 1;
  const second = failed();
  taker.refresh();
  expect(taker.capacity(revision)).toBeUndefined();
  expect(await second).toMatchObject({ pauseMs: 10_000 });
  expect(requests).toBe(requestsInPause + 1);

  const path = join(folder, 'model.onnx');
  await writeFile(path, model);
  await store.put(manifest.files[0], path);
  nowMs += 10_000;
  const fetched = once(said, 'fetched');
  taker.refresh();
  await fetched;
  expect(taker.capacity(revision)).toMatchObject({ held: true });

  // A function that kills this worker's processes is not offered either, until it gets one again.
  const stopped = vi.spyOn(taker.pools, 'stopped');
  stopped.mockReturnValue({ crashes: 2, reason: 'it was ended by SIGSEGV', untilMs: Infinity });
  expect(taker.capacity(revision)).toBeUndefined();
  stopped.mockRestore();
  expect(taker.capacity(revision)).toMatchObject({ held: true });
});
