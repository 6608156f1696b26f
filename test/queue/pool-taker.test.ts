/** What a worker offers for functions whose files it cannot get, and how functions with the same weights share them. */
import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { PoolTaker, sealManifest } from '../../src/queue/index.ts';
import { FolderStore, type Store } from '../../src/store/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { hashFile } from '../../src/tools/index.ts';
import { poolLimits } from '../support/cpu-pools.ts';
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

const pickLimits = ({ batchDelayMs, handlerTimeoutMs, loadTimeoutMs, inferTimeoutMs }: typeof poolLimits) => ({
  batchDelayMs,
  handlerTimeoutMs,
  loadTimeoutMs,
  inferTimeoutMs,
});

const startTaker = (store: Store, options: Partial<ConstructorParameters<typeof PoolTaker>[0]>): PoolTaker =>
  new PoolTaker({
    name: 'lab-7',
    cores: 1,
    pools,
    store,
    models: join(folder, 'models'),
    modelBytesMax: 1e9,
    threads: 1,
    queueMax: 1,
    idleMs: 1000,
    log: silentLog,
    ...options,
  });

test('a function that cannot be fetched is not offered, tried again, and offered once it is here', async () => {
  const said = new EventEmitter();
  const store = new FolderStore(join(folder, 'store'));
  const taker = startTaker(store, {
    modelBytesMax: 1000,
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

test('a function that is to share no process shares none at a worker', async () => {
  const graph = new GraphBuilder('echo');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 1]);
  graph.output(graph.node('Neg', [x]), ElementType.FLOAT, ['batch', 1], 'y');
  const path = join(folder, 'echo.onnx');
  await writeModel(graph.build(), path);
  const file = { name: 'echo.onnx', ...(await hashFile(path)) };
  const limits = { ...pickLimits(poolLimits), batchMax: 1 };
  const [one, other, apart] = [
    sealManifest({ key: 'one@1', files: [file], limits }),
    sealManifest({ key: 'other@1', files: [file], limits: { ...limits, batchMax: 2 } }),
    sealManifest({ key: 'apart@1', files: [file], limits, isolation: 'own' }),
  ] as const;
  const store = new FolderStore(join(folder, 'store'));
  await store.put(file, path);
  const taker = startTaker(store, { pools: { ...pools, memoryBytes: 4e9 } });
  await taker.start();
  taker.learn([one, other, apart]);
  const input = { kind: 'tensors', tensors: [tensorOf('x', 'FP32', [1, 1], Float32Array.of(1))] } as const;
  const pids: number[] = [];
  for (const { revision } of [one, other, apart]) pids.push((await taker.run(revision, input, {})).instancePid);
  expect(pids[1]).toBe(pids[0]);
  expect(pids[2]).not.toBe(pids[0]);
  await taker.stop();
});

test.skipIf(process.platform !== 'linux')(
  'functions with the same weights map them from the same prepared files at a worker too',
  async () => {
    const width = 1088;
    const graph = new GraphBuilder('wide');
    const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
    const weights = Float32Array.from({ length: width * width }, (_, at) => Math.sin(at) / 10);
    const y = graph.node('MatMul', [x, graph.weight('w', [width, width], weights)]);
    graph.output(y, ElementType.FLOAT, ['batch', width], 'y');
    const path = join(folder, 'wide.onnx');
    await writeModel(graph.build(), path);
    const file = { name: 'wide.onnx', ...(await hashFile(path)) };
    // Twins: each is a function of its own, with limits of its own.
    const [first, second] = [1, 4].map((batchMax) =>
      sealManifest({
        key: `f${batchMax}@1`,
        files: [file],
        limits: { ...pickLimits(poolLimits), batchMax },
      }),
    );
    const store = new FolderStore(join(folder, 'store'));
    await store.put(file, path);
    const cacheFolder = join(folder, 'weights');
    const taker = startTaker(store, { pools: { ...pools, memoryBytes: 4e9, cacheFolder } });
    await taker.start();
    taker.learn([first!, second!]);
    const run = async (revision: string): Promise<number> => {
      const input = { kind: 'tensors', tensors: [tensorOf('x', 'FP32', [1, width], new Float32Array(width))] } as const;
      return (await taker.run(revision, input, {})).instancePid;
    };
    await run(first!.revision);
    await taker.pools.evict(first!.revision);
    await run(first!.revision);
    // A load for the second time has the weights prepared behind it.
    const entries = async (): Promise<readonly string[]> =>
      (await readdir(cacheFolder)).filter((name) => /^[0-9a-f]{32}$/.test(name));
    await vi.waitFor(async () => expect(await entries()).toHaveLength(1), { timeout: 60_000 });
    await vi.waitFor(
      async () => {
        await taker.pools.evict(second!.revision).catch(() => undefined);
        const pid = await run(second!.revision);
        expect(await readFile(`/proc/${pid}/maps`, 'utf8')).toContain(cacheFolder);
      },
      { timeout: 60_000 },
    );
    expect(await entries()).toHaveLength(1);
    await taker.stop();
  },
);
