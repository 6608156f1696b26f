/** What a worker offers for functions whose files it cannot get. */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { PoolTaker, sealManifest } from '../../src/queue/index.ts';
import { FolderStore } from '../../src/store/index.ts';
import { silentLog } from '../support/silent-log.ts';

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

test('a function that cannot be fetched is not offered, tried again, and offered once it is here', async () => {
  const said = new EventEmitter();
  const store = new FolderStore(join(folder, 'store'));
  const taker = new PoolTaker({
    name: 'lab-7',
    cores: 1,
    pools,
    store,
    models: join(folder, 'models'),
    modelBytesMax: 1000,
    threads: 1,
    queueMax: 1,
    idleMs: 1000,
    log: { ...silentLog, warn: (fields) => void said.emit('failed', fields) },
  });
  await taker.start();

  const first = once(said, 'failed');
  taker.learn([manifest]);
  expect(taker.offer(revision)).toMatchObject({ isHeld: false }); // It may still come.
  expect((await first)[0]).toMatchObject({
    function: 'f@1',
    reason: expect.stringContaining('has no file') as string,
  });
  expect(taker.offer(revision)).toBeUndefined();
  await expect(taker.run(revision, { kind: 'tensors', tensors: [] }, {})).rejects.toMatchObject({ code: 'stopping' });
  expect(taker.offer(revision)).toBeUndefined();

  const path = join(folder, 'model.onnx');
  await writeFile(path, model);
  await store.put(manifest.files[0], path);
  await vi.waitFor(() => expect(taker.offer(revision)).toMatchObject({ isHeld: true }), { timeout: 60_000 });

  // A function that kills this worker's processes is not offered either, until it gets one again.
  const stopped = vi.spyOn(taker.pools, 'stopped');
  stopped.mockReturnValue({ crashes: 2, reason: 'it was ended by SIGSEGV', untilMs: Infinity });
  expect(taker.offer(revision)).toBeUndefined();
  stopped.mockRestore();
  expect(taker.offer(revision)).toMatchObject({ isHeld: true });
  await taker.stop();
});
