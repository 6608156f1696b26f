/**
 * 60 functions, of which pinned host memory holds 20 and the GPU 5: one host over real HTTP, the scheduler that owns
 * both, and the GPU process on the emulated driver. Whatever happens, the books of all three are the same.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import { policies, type Action } from '../../../src/schedule/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { recordSchedulers, replaySteps, type SchedulerRecording } from '../../support/scheduler-recording.ts';

const count = 60;
const connections = 8;
const mebibyte = 2 ** 20;
const names = Array.from({ length: count }, (_, index) => `lstm-${index}`);
const values = Float32Array.from({ length: 4 * 32 }, (_, index) => ((index * 7919) % 1000) / 1000 - 0.5);
const input = tensorOf('input', 'FP32', [1, 4, 32], values);
const body = JSON.stringify({
  inputs: [{ name: 'input', datatype: 'FP32', shape: [1, 4, 32], data: Array.from(values) }],
});

const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
let folder: string;
let host: RunningHost;
let recording: SchedulerRecording;
/** ONNX Runtime's answers, by function. */
const expected = new Map<string, ReadonlyMap<string, Float32Array>>();
let bytesOfOne = 0;
let hostBytes = 0;

async function addFunction(name: string, seed: number, under = 'functions'): Promise<void> {
  const place = join(folder, under, name);
  await mkdir(place, { recursive: true });
  const settings = { layers: 2, input: 32, hidden: 64, sequence: 4, batch: 1 };
  const built = buildArchitecture('lstm', settings, seed);
  bytesOfOne = built.weightBytes;
  await writeModel(built.model, join(place, 'model.onnx'));
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
  const outputs = await runOnnxRuntime(join(place, 'model.onnx'), [input]);
  expected.set(name, new Map(outputs.map(({ name: output, data }) => [output, new Float32Array(data.slice().buffer)])));
}

/** Calls of functions that differ much in how often they are called. Returns what was wrong, and where they ran. */
async function callAtRandom(calls: number, afterEach?: (answered: number) => void) {
  const wrong: string[] = [];
  const starts = new Map<string, number>();
  let begun = 0;
  let answered = 0;
  const connection = async (): Promise<void> => {
    while (begun < calls) {
      begun++;
      const name = names[Math.floor(count * (random.below(1000) / 1000) ** 3)]!;
      const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
      const text = await reply.text();
      const problem = reply.status === 200 ? differenceOf(name, text) : `${reply.status} ${text}`;
      if (problem !== undefined) wrong.push(`${name}: ${problem}`);
      const placement = reply.headers.get('x-turntable-placement') ?? '';
      const start = /^gpu0 (warm|partial|cold|from disk)/.exec(placement)?.[1] ?? placement;
      starts.set(start, (starts.get(start) ?? 0) + 1);
      afterEach?.(++answered);
    }
  };
  await Promise.all(Array.from({ length: connections }, connection));
  return { wrong, starts };
}

function differenceOf(name: string, text: string): string | undefined {
  const { outputs } = JSON.parse(text) as { readonly outputs: readonly { name: string; data: readonly number[] }[] };
  for (const [output, wanted] of expected.get(name)!) {
    const found = outputs.find((each) => each.name === output)?.data ?? [];
    const difference = Math.max(...wanted.map((value, index) => Math.abs(value - (found[index] ?? NaN))));
    if (!(difference <= 1e-4)) return `${output} is off by ${difference}`;
  }
  return undefined;
}

/** Bytes of each function in host memory, by the orders of the scheduler alone. */
function bookOf(): ReadonlyMap<number, number> {
  const book = new Map<number, number>();
  const reads = new Map<number, number>();
  const add = (functionIndex: number, bytes: number): void => {
    book.set(functionIndex, (book.get(functionIndex) ?? 0) + bytes);
  };
  for (const { event, actions } of recording.steps) {
    if (event.kind === 'host-lost') book.clear();
    if (event.kind === 'stage-refused' || event.kind === 'stage-failed')
      add(event.functionIndex, -(reads.get(event.functionIndex) ?? 0));
    for (const text of actions) {
      const action = JSON.parse(text) as Action;
      if (action.kind === 'evict-host') add(action.functionIndex, -action.bytes);
      if (action.kind !== 'stage') continue;
      add(action.functionIndex, action.bytes);
      reads.set(action.functionIndex, action.bytes);
    }
  }
  return book;
}

/** Once all orders are carried out, the scheduler's books, its orders and the engine's memory say the same. */
async function expectBooksEqual(): Promise<void> {
  const { live } = host.gpus!;
  await live.gpusIdle();
  await vi.waitFor(
    async () => {
      const state = (await host.gpus!.state())!;
      const book = bookOf();
      const [own, engines] = [new Map<string, number>(), new Map<string, number>()];
      for (const name of names) {
        const key = `${name}@1`;
        const { index } = live.placeOf(key)!;
        own.set(key, book.get(index) ?? 0);
        const { bytes, filledBytes } = state.host.functions.find((each) => each.key === key)!.host;
        expect(filledBytes).toBe(bytes);
        engines.set(key, bytes);
        const onGpu = state.residencies.find((each) => each.key === key)?.bytes ?? 0;
        expect([key, onGpu]).toEqual([key, live.resident(key, 0).bytes]);
      }
      expect([...engines]).toEqual([...own]);
      expect(state.host.usedBytes).toBe(live.hostBytes);
      expect(state.host.usedBytes).toBeLessThanOrEqual(state.host.budgetBytes);
    },
    { interval: 50 },
  );
}

describe.skipIf(emulatorMissing)('60 functions, where host memory holds 20 and the GPU 5', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-host-memory-'));
    await emulateGpus([{ memoryBytes: 64 * mebibyte }]);
    for (const [index, name] of names.entries()) await addFunction(name, index);
    hostBytes = Math.ceil(20.5 * bytesOfOne);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': `${Math.ceil((5.5 * bytesOfOne) / 0.85 / 1024)}KiB`,
        'gpu.hostMemory': `${Math.ceil(hostBytes / 1024)}KiB`,
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
      },
    });
    hostBytes = config.gpu.hostBytes;
    recording = recordSchedulers();
    host = await startHost(config, {
      logger: createLogger({ level: process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent', format: 'json' }),
    });
    await host.gpus!.settled();
  });
  afterAll(async () => {
    await host?.stop();
    recording?.[Symbol.dispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('all are checked and planned, though host memory has room for a third of them', async () => {
    const unplanned = names.filter((name) => host.gpus!.record(`${name}@1`)?.state.kind !== 'planned');
    expect(unplanned.map((name) => host.gpus!.whyNot(`${name}@1`)?.words)).toEqual([]);
    const state = (await host.gpus!.state())!;
    const sizes = state.host.functions.map(({ host: { bytes } }) => bytes).filter((bytes) => bytes > 0);
    expect(hostBytes / Math.max(...sizes)).toBeLessThan(21);
    expect(host.gpus!.live.gpus[0]!.capacityBytes / Math.max(...sizes)).toBeLessThan(6);
    await expectBooksEqual();
  });

  test('answers are right on the GPU, and the scheduler reads and evicts as one that hears the same', async () => {
    const { wrong, starts } = await callAtRandom(300);
    expect(wrong).toEqual([]);
    for (const kind of starts.keys()) expect(['warm', 'partial', 'cold', 'from disk']).toContain(kind);
    expect(starts.get('from disk')).toBeGreaterThan(10);
    await expectBooksEqual();
    const { gpus, counts } = host.gpus!.live;
    expect(counts.starts.disk).toBe(starts.get('from disk'));
    const { steps } = recording;
    const tier = { capacityBytes: hostBytes, diskGBps: 1 };
    const cpu = { cores: 2, memoryBytes: Infinity };
    const again = replaySteps(steps, { gpus, policy: policies.best, cpu, host: tier });
    expect(again.actions).toEqual(steps.map((step) => step.actions));
    expect(again.scheduler.hostBytes).toBe(host.gpus!.live.hostBytes);
  });

  test('functions come and go with their bytes, while others are called', async () => {
    const calls = callAtRandom(150);
    const came = names.slice(-4).map((name) => `new-${name}`);
    for (const [index, name] of came.entries()) {
      // Not a copy of another one, with which it would share its layers.
      await addFunction(name, count + index, 'came');
      const model = await readFile(join(folder, 'came', name, 'model.onnx'));
      const published = await fetch(`${host.url}/functions/${name}?slo=60s`, { method: 'PUT', body: model });
      expect([name, published.status]).toEqual([name, 201]);
      await host.gpus!.planned(`${name}@1`);
      const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
      expect(differenceOf(name, await reply.text())).toBeUndefined();
      const removed = await fetch(`${host.url}/functions/${name}`, { method: 'DELETE' });
      expect([name, removed.status]).toEqual([name, 204]);
    }
    expect((await calls).wrong).toEqual([]);
    await host.gpus!.settled();
    await expectBooksEqual();
    expect((await host.gpus!.state())!.host.functions).toHaveLength(count);
  });

  test('with half of the host memory what is worth least goes, and answers stay right', async () => {
    const half = Math.floor(hostBytes / 2);
    const calls = callAtRandom(100, (answered) => {
      if (answered === 30) host.gpus!.setHostBytes(half);
    });
    expect((await calls).wrong).toEqual([]);
    await expectBooksEqual();
    expect((await host.gpus!.state())!.host).toMatchObject({ budgetBytes: half });
    expect(host.gpus!.live.hostBytes).toBeGreaterThan(half / 2);
    host.gpus!.setHostBytes(hostBytes);
    expect((await callAtRandom(100)).wrong).toEqual([]);
    await expectBooksEqual();
    expect(host.gpus!.live.hostBytes).toBeGreaterThan(half);
  });

  test('after kills of the GPU process, what was called is read again without a call', async () => {
    const gpus = host.gpus!;
    for (const kill of [1, 2]) {
      const { wrong } = await callAtRandom(80, (answered) => {
        if (answered === 30) process.kill(gpus.pid, 'SIGKILL');
      });
      expect(wrong).toEqual([]);
      await vi.waitUntil(() => gpus.restarts === kill && gpus.status === 'up');
      await gpus.settled();
      await vi.waitUntil(() => gpus.live.hostBytes > hostBytes / 2);
      await expectBooksEqual();
    }
    expect((await callAtRandom(60)).wrong).toEqual([]);
    await expectBooksEqual();
  });
});
