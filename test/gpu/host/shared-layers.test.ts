/**
 * Versions, twins and strangers on one host over real HTTP, with the GPU process on the emulated driver: shared layers are
 * read, loaded and kept once, answers are those of ONNX Runtime, and the books of scheduler and engine are the same.
 */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { apiKeyEntry } from '../../../src/host/access/api-keys.ts';
import type { FunctionsAnswer, MemoryAnswer } from '../../../src/host/dashboard/index.ts';
import { routes } from '../../../src/host/http/routes.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, serializeModel, writeModel } from '../../../src/onnx/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';

const mebibyte = 2 ** 20;
const values = Float32Array.from({ length: 4 * 32 }, (_, index) => ((index * 7919) % 1000) / 1000 - 0.5);
const input = tensorOf('input', 'FP32', [1, 4, 32], values);
const body = JSON.stringify({
  inputs: [{ name: 'input', datatype: 'FP32', shape: [1, 4, 32], data: Array.from(values) }],
});
const twins = Array.from({ length: 5 }, (_, index) => `twin-${index}`);
const versions = Array.from({ length: 5 }, (_, index) => `version-${index}`);
const strangers = Array.from({ length: 4 }, (_, index) => `stranger-${index}`);
const names = [...twins, ...versions, ...strangers];

const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
const operatorKey = 'may-publish-and-read';
let folder: string;
let host: RunningHost;
let bytesOfOne = 0;
const expected = new Map<string, ReadonlyMap<string, Float32Array>>();

const modelOf = (name: string): string => join(folder, `${name}.onnx`);

/** A network of a seed; with a head, its last weights are those of another seed. */
async function makeModel(name: string, seed: number, head?: number, layers = 3): Promise<void> {
  const settings = { layers, input: 32, hidden: 64, sequence: 4, batch: 1 };
  const built = buildArchitecture('lstm', settings, seed);
  bytesOfOne = built.weightBytes;
  const weights = built.model.graph.initializer;
  if (head !== undefined) {
    const other = buildArchitecture('lstm', settings, head).model.graph.initializer;
    weights[weights.length - 1] = other.at(-1)!;
  }
  await writeModel(built.model, modelOf(name));
  const outputs = await runOnnxRuntime(modelOf(name), [input]);
  expected.set(name, new Map(outputs.map(({ name: output, data }) => [output, new Float32Array(data.slice().buffer)])));
}

async function wrongAnswerOf(name: string): Promise<string | undefined> {
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
  const text = await reply.text();
  if (reply.status !== 200) return `${name}: ${reply.status} ${text}`;
  const placement = reply.headers.get('x-turntable-placement') ?? '';
  if (!placement.startsWith('gpu0')) return `${name} ran ${placement}`;
  const { outputs } = JSON.parse(text) as { readonly outputs: readonly { name: string; data: readonly number[] }[] };
  for (const [output, wanted] of expected.get(name)!) {
    const found = outputs.find((each) => each.name === output)?.data ?? [];
    const difference = Math.max(...wanted.map((value, index) => Math.abs(value - (found[index] ?? NaN))));
    if (!(difference <= 1e-4)) return `${name}: ${output} is off by ${difference}`;
  }
  return undefined;
}

async function callAtRandom(calls: number, afterEach?: (answered: number) => void): Promise<string[]> {
  const wrong: string[] = [];
  let begun = 0;
  let answered = 0;
  const connection = async (): Promise<void> => {
    while (begun++ < calls) {
      const problem = await wrongAnswerOf(names[random.below(names.length)]!);
      if (problem !== undefined) wrong.push(problem);
      afterEach?.(++answered);
    }
  };
  await Promise.all(Array.from({ length: 4 }, connection));
  return wrong;
}

/** Once all orders are carried out, the scheduler and the engine say the same. */
async function expectBooksEqual(): Promise<void> {
  const { live } = host.gpus!;
  await live.gpusIdle();
  await vi.waitFor(
    async () => {
      const state = (await host.gpus!.state())!;
      expect(state.memory[0]!.weightBytes).toBe(live.residentBytes(0));
      expect(state.host.usedBytes).toBe(live.hostBytes);
    },
    { interval: 50 },
  );
}

async function publish(name: string): Promise<void> {
  const model = await readFile(modelOf(name));
  const published = await ask(`/functions/${name}?slo=60s`, { method: 'PUT', body: model });
  if (published.status !== 201) throw new Error(`${name} was not published: ${await published.text()}`);
}

async function publishHead(name: string, hidden: number, head: number): Promise<void> {
  const { model } = buildArchitecture('mlp', { layers: 2, input: 32, hidden, output: 8, batch: 1 }, head);
  const published = await ask(`/functions/${name}`, { method: 'PUT', body: serializeModel(model) });
  expect([name, published.status]).toEqual([name, 201]);
}

const sumOf = (residents: readonly { readonly bytes: number }[]): number =>
  residents.reduce((total, { bytes }) => total + bytes, 0);

const ask = (path: string, init: RequestInit = {}, key = operatorKey): Promise<Response> =>
  fetch(`${host.url}${path}`, { ...init, headers: { authorization: `Bearer ${key}` } });

/** Bytes that were copied from host memory to the GPU. */
async function linkBytes(): Promise<number> {
  const text = await (await ask('/metrics')).text();
  return Number(/^turntable_gpu_link_bytes_total\{.*direction="from_host".*\} (\d+)/m.exec(text)?.[1]);
}

/** Programs that the compiler has made, each of which it keeps. */
const compiled = async (): Promise<number> => (await readdir(join(folder, 'data', 'cache', 'gpu', 'programs'))).length;

describe.skipIf(emulatorMissing)('functions that share layers', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-shared-'));
    await emulateGpus([{ memoryBytes: 64 * mebibyte }]);
    for (const name of twins) await makeModel(name, 1);
    for (const [index, name] of versions.entries()) await makeModel(name, 2, 100 + index);
    for (const [index, name] of strangers.entries()) await makeModel(name, 10 + index);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': `${Math.ceil((4.5 * bytesOfOne) / 0.85 / 1024)}KiB`,
        'gpu.hostMemory': `${Math.ceil((7 * bytesOfOne) / 1024)}KiB`,
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
        // What would be executed from host memory follows from measured times.
        'gpu.mode': 'pipeswitch',
        apiKeysFor: 'read',
      },
    });
    const apiKeys = [
      apiKeyEntry('operator', ['publish', 'read'], operatorKey),
      apiKeyEntry('caller', ['invoke'], 'may-invoke'),
    ];
    host = await startHost(
      { ...config, apiKeys },
      {
        logger: createLogger({ level: process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent', format: 'json' }),
      },
    );
    for (const name of names) await publish(name);
    await host.gpus!.settled();
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('twins are one on the GPU, versions share all but their heads, and strangers nothing', async () => {
    const unplanned = names.filter((name) => host.gpus!.record(`${name}@1`)?.state.kind !== 'planned');
    expect(unplanned).toEqual([]);
    for (const name of [...twins, ...versions]) expect(await wrongAnswerOf(name)).toBeUndefined();
    const { live } = host.gpus!;
    const whole = live.resident('twin-0@1', 0).bytes;
    for (const name of twins) expect(live.resident(`${name}@1`, 0).shared).toMatchObject({ bytes: whole });
    const { shared } = live.resident('version-1@1', 0);
    expect(shared!.keys).toHaveLength(versions.length - 1);
    expect(shared!.bytes).toBeGreaterThan(whole / 2);
    expect(shared!.bytes).toBeLessThan(whole);
    await expectBooksEqual();
    expect(live.residentBytes(0)).toBeLessThanOrEqual(2 * whole + (versions.length - 1) * (whole - shared!.bytes));
    expect(await wrongAnswerOf(strangers[0]!)).toBeUndefined();
    expect(live.resident(`${strangers[0]!}@1`, 0).shared).toBeUndefined();
  });

  test('answers are right while functions come to the GPU and go, and the books agree', async () => {
    expect(await callAtRandom(120)).toEqual([]);
    await expectBooksEqual();
  });

  test('memory view, metrics and ps count shared bytes once and say with whom, to keys that may read alone', async () => {
    const { live } = host.gpus!;
    for (const name of [...twins, ...versions]) expect(await wrongAnswerOf(name)).toBeUndefined();
    await expectBooksEqual();
    const memory = (await (await ask('/api/memory')).json()) as MemoryAnswer;
    const { residents } = memory.gpus[0]!;
    expect(sumOf(residents)).toBe(live.residentBytes(0));
    expect(sumOf(memory.host.pinned)).toBe(live.hostBytes);
    const whyOf = (name: string): string => residents.find(({ functionName }) => functionName === name)?.why ?? '';
    expect(whyOf('version-1')).toMatch(/ shared with version-\d@1, version-\d@1, version-\d@1 and 1 more$/);
    // All that a twin has is counted with another one.
    expect(residents.filter(({ functionName }) => twins.includes(functionName))).toHaveLength(1);
    const metrics = await (await ask('/metrics')).text();
    expect(metrics).toMatch(new RegExp(`^turntable_gpu_weight_bytes\\{.*\\} ${live.residentBytes(0)}$`, 'm'));
    const { functions } = (await (await ask('/api/functions')).json()) as FunctionsAnswer;
    expect(functions.find(({ name }) => name === 'version-1')?.plan).toMatch(/ shared with 4 others/);
    const told: string[] = [];
    for (const { method, path, scope } of routes) {
      if (method !== 'GET' || scope !== 'read' || path.includes('events')) continue;
      const reply = await ask(path.replace(':name', 'version-1').replace(':version', '1'), {}, 'may-invoke');
      if (reply.status !== 403 || /version-[^1]|twin/.test(await reply.text())) told.push(`${path}: ${reply.status}`);
    }
    expect(told).toEqual([]);
    const reply = await ask('/v2/models/version-1/infer', { method: 'POST', body }, 'may-invoke');
    expect(reply.status).toBe(200);
    expect(JSON.stringify([...reply.headers]) + (await reply.text())).not.toMatch(/version-[^1]|twin/);
  });

  test('removing the first of a family leaves the others what they share', async () => {
    for (const name of [twins.shift()!, versions.shift()!]) {
      names.splice(names.indexOf(name), 1);
      const removed = await ask(`/functions/${name}`, { method: 'DELETE' });
      expect([name, removed.status]).toEqual([name, 204]);
      await vi.waitUntil(() => host.gpus!.record(`${name}@1`) === undefined);
    }
    await host.gpus!.settled();
    await expectBooksEqual();
    expect(await callAtRandom(60)).toEqual([]);
    await expectBooksEqual();
  });

  test('after a kill of the GPU process they share again', async () => {
    const gpus = host.gpus!;
    const before = gpus.restarts;
    const wrong = await callAtRandom(60, (answered) => {
      if (answered === 20) process.kill(gpus.pid, 'SIGKILL');
    });
    // A call that was there when the process ended may have run on the CPU.
    expect(wrong.filter((text) => !/ran cpu/.test(text))).toEqual([]);
    await vi.waitUntil(() => gpus.restarts > before && gpus.status === 'up');
    await gpus.settled();
    await callAtRandom(40);
    await expectBooksEqual();
    expect(gpus.live.resident(`${twins[0]!}@1`, 0).shared?.keys).toHaveLength(twins.length - 1);
  });

  test('a second version with another head brings the bytes of the head alone, in its checks and in its first call', async () => {
    const { live } = host.gpus!;
    // So many layers that a few loads of the last are less than one of the others.
    const layers = 8;
    const published = async (head?: number): Promise<number> => {
      await makeModel('updated', 50, head, layers);
      const before = await linkBytes();
      await publish('updated');
      await host.gpus!.settled();
      return (await linkBytes()) - before;
    };
    await published();
    expect(await wrongAnswerOf('updated')).toBeUndefined();
    const checkedBytes = await published(51);
    await live.functions.unload('updated@2');
    const before = await linkBytes();
    expect(await wrongAnswerOf('updated')).toBeUndefined();
    const calledBytes = (await linkBytes()) - before;
    const { bytes, shared } = live.resident('updated@2', 0);
    expect(shared!.keys).toEqual(['updated@1']);
    const headBytes = bytes - shared!.bytes;
    expect([headBytes > 0, headBytes < bytes / (layers - 1)]).toEqual([true, true]);
    expect(calledBytes).toBe(headBytes + values.byteLength);
    // It is compared with ONNX Runtime before and after it has plans.
    expect(checkedBytes).toBeLessThanOrEqual(2 * (headBytes + values.byteLength));
    await expectBooksEqual();
    const removed = await ask('/functions/updated', { method: 'DELETE' });
    expect(removed.status).toBe(204);
  });

  test('twenty versions of a graph are compiled once, and one with another graph once more', async () => {
    const before = await compiled();
    for (let head = 0; head < 20; head++) await publishHead(`head-${head}`, 16, head);
    await host.gpus!.settled();
    const states = Array.from({ length: 20 }, (_, head) => host.gpus!.record(`head-${head}@1`)?.state.kind);
    expect(new Set(states)).toEqual(new Set(['planned']));
    expect(await compiled()).toBe(before + 1);
    await publishHead('wider', 24, 1);
    await host.gpus!.settled();
    expect(await compiled()).toBe(before + 2);
  });
});
