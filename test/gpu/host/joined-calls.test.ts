/** Calls of one function that share runs on a GPU, with one host on the emulated driver. */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost, type HostConfig, type RunningHost } from '../../../src/host/index.ts';
import type { JoinedSizes, Placed } from '../../../src/live/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { wave } from '../../support/unrolling.ts';

const width = 8;
/** So many launches, each so small, that a run of four rows takes hardly longer than one of a single row. */
const layers = 40;
const key = 'chain@1';
const version = { key, settings: { sloMs: 60_000, priority: 100 } };

let folder: string;
let modelPath: string;
let config: HostConfig;
let host: RunningHost;

async function start(): Promise<void> {
  const level = process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent';
  host = await startHost(config, { logger: createLogger({ level, format: 'json' }) });
  await host.gpus!.settled();
}

async function writeChain(): Promise<void> {
  const graph = new GraphBuilder('chain');
  let y = graph.input('x', ElementType.FLOAT, ['batch', width]);
  const shape = [width, width];
  for (let layer = 0; layer < layers; layer++) {
    const weight = graph.weight(`w${layer}`, shape, wave(shape, layer + 1, 0.6));
    y = graph.node('Tanh', [graph.node('MatMul', [y, weight])]);
  }
  graph.output(y, ElementType.FLOAT, ['batch', width], 'y');
  await writeModel(graph.build(), modelPath);
}

const inputOf = (call: number): Tensor =>
  tensorOf(
    'x',
    'FP32',
    [1, width],
    Float32Array.from({ length: width }, (_, at) => Math.sin(call * 1.7 + at)),
  );

const numbersOf = ({ data }: Tensor): number[] => [...new Float32Array(Uint8Array.from(data).buffer)];

async function expectRight(call: number, found: readonly number[]): Promise<void> {
  const [expected] = await runOnnxRuntime(modelPath, [inputOf(call)]);
  const wanted = numbersOf(expected!);
  expect(found).toHaveLength(width);
  expect(Math.max(...wanted.map((value, at) => Math.abs(value - found[at]!)))).toBeLessThan(1e-4);
}

async function infer(call: number): Promise<number[]> {
  const body = JSON.stringify({
    inputs: [{ name: 'x', datatype: 'FP32', shape: [1, width], data: numbersOf(inputOf(call)) }],
  });
  const reply = await fetch(`${host.url}/v2/models/chain/infer`, { method: 'POST', body });
  const text = await reply.text();
  expect([reply.status, text.slice(0, 300)]).toEqual([200, expect.any(String)]);
  return (JSON.parse(text) as { readonly outputs: readonly { readonly data: number[] }[] }).outputs[0]!.data;
}

const runsSoFar = (): number => {
  const { cold, partial, warm } = host.gpus!.live.counts.starts;
  return cold + partial + warm;
};

/** Each call takes one step towards joined runs. */
const untilJoined = (): Promise<unknown> =>
  vi.waitUntil(async () => {
    await infer(0);
    return host.gpus!.joinOf(key, [inputOf(0)]) !== undefined;
  });

/** All in one turn of the event loop: the first runs at once, the others wait. */
const submit = (calls: number, signals: ReadonlyMap<number, AbortSignal> = new Map()): Promise<Placed>[] =>
  Array.from({ length: calls }, (_, call) => {
    const tensors = [inputOf(call)];
    const wish = { join: host.gpus!.joinOf(key, tensors), signal: signals.get(call) };
    return host.gpus!.live.submit(version, tensors, wish);
  });

const batchSizeOf = (placed: Placed): number | string => (placed.kind === 'gpu' ? placed.batchSize : placed.kind);

describe.skipIf(emulatorMissing)('calls of a function with batching.max 4', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-joined-'));
    const place = join(folder, 'functions', 'chain');
    await mkdir(place, { recursive: true });
    modelPath = join(place, 'model.onnx');
    await writeChain();
    await writeFile(
      join(place, 'function.json'),
      JSON.stringify({ model: 'model.onnx', slo: '60s', batching: { max: 4 } }),
    );
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    ({ config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '1',
        'cpu.profiling': 'off',
        'gpu.hostMemory': '64MiB',
        'gpu.profileIterations': '1',
      },
    }));
    await start();
    await untilJoined();
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('calls of a function with batching.max 4 have the times of joined runs in the offer of their function', () => {
    const { batches, warmMs } = host.gpus!.live.sheetOf(key)!.gpus[0]!;
    expect(batches?.map(({ rows }) => rows)).toEqual([2, 4]);
    for (const { ms } of batches!) expect(ms).toBeGreaterThan(0);
    expect(warmMs).toBeGreaterThan(0);
  });

  test('calls of a function with batching.max 4 that arrive at once are eight answers of three runs, each that of ONNX Runtime to its own input', async () => {
    const before = runsSoFar();
    const placed = await Promise.all(submit(8));
    expect(placed.map(batchSizeOf)).toEqual([1, 4, 4, 4, 4, 3, 3, 3]);
    expect(runsSoFar() - before).toBe(3);
    for (const [call, ran] of placed.entries())
      if (ran.kind === 'gpu') await expectRight(call, numbersOf(ran.result.outputs[0]!));
  });

  test('over HTTP share runs, are answered right, and are counted as batches', async () => {
    const before = runsSoFar();
    let calls = 0;
    const burst = async (): Promise<boolean> => {
      const answers = await Promise.all(Array.from({ length: 16 }, (_, call) => infer(call)));
      calls += answers.length;
      for (const [call, answer] of answers.entries()) await expectRight(call, answer);
      return runsSoFar() - before < calls;
    };
    // The number that arrives during a run is random.
    await vi.waitUntil(burst);
    const reply = await fetch(`${host.url}/v2/models/chain/versions/1/stats`);
    const { model_stats: [stats] } = (await reply.json()) as { readonly model_stats: readonly { readonly batch_stats: readonly { readonly batch_size: number }[] }[] }; // prettier-ignore
    expect(Math.max(...stats!.batch_stats.map(({ batch_size: size }) => size))).toBeGreaterThan(1);
  });

  test('whose client leaves while they wait are not run, and the others are', async () => {
    const client = new AbortController();
    const placed = submit(6, new Map([[2, client.signal]]));
    client.abort();
    const ended = await Promise.allSettled(placed);
    const sizes = ended.map((end) => (end.status === 'fulfilled' ? batchSizeOf(end.value) : String(end.reason)));
    expect(sizes).toEqual([1, 4, 'CpuError: the client is gone', 4, 4, 4]);
  });

  test('whose client leaves in a joined run do not disturb it', async () => {
    const before = runsSoFar();
    const client = new AbortController();
    const placed = submit(5, new Map([[2, client.signal]]));
    await placed[0];
    expect(runsSoFar() - before).toBe(2);
    client.abort();
    expect((await Promise.all(placed)).map(batchSizeOf)).toEqual([1, 4, 4, 4, 4]);
  });

  test('calls of a function with batching.max 4 are each answered once when the GPU process is killed in their run, and joined again by the next process', async () => {
    const { gpus } = host;
    const placed = submit(5);
    await placed[0];
    process.kill(gpus!.pid, 'SIGKILL');
    for (const [call, ended] of (await Promise.all(placed)).entries()) {
      // The scheduler gave the call to the CPU, and must learn that it ran.
      if (ended.kind === 'cpu') ended.done();
      else if (ended.kind === 'gpu') await expectRight(call, numbersOf(ended.result.outputs[0]!));
      else throw new Error(`call ${call} ended as ${ended.kind}`);
    }
    await vi.waitUntil(() => gpus!.status === 'up');
    await gpus!.settled();
    await untilJoined();
    expect((await Promise.all(submit(5))).map(batchSizeOf)).toEqual([1, 4, 4, 4, 4]);
  });

  test('calls of a function with batching.max 4 are joined after a restart with the stored times, and nothing is timed again', async () => {
    const folderOfTimes = join(folder, 'data', 'plans', 'batches');
    const [file] = await readdir(folderOfTimes);
    const kept = JSON.parse(await readFile(join(folderOfTimes, file!), 'utf8')) as JoinedSizes;
    expect(kept.shares.map(({ rows }) => rows)).toEqual([2, 4]);
    // No measurement gives these times: they can only come from the file.
    const shares = kept.shares.map(({ rows }) => ({ rows, share: 0.125 }));
    await writeFile(join(folderOfTimes, file!), JSON.stringify({ ...kept, shares }));
    await host.stop();
    await start();
    await untilJoined();
    const { batches } = host.gpus!.live.sheetOf(key)!.gpus[0]!;
    // The same time for both sizes, so it was not measured.
    expect(batches!.map(({ rows }) => rows)).toEqual([2, 4]);
    expect(batches![0]!.ms).toBeCloseTo(batches![1]!.ms, 9);
    expect(JSON.parse(await readFile(join(folderOfTimes, file!), 'utf8'))).toMatchObject({ shares });
    expect((await Promise.all(submit(5))).map(batchSizeOf)).toEqual([1, 4, 4, 4, 4]);
  });
});
