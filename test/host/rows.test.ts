/** Whether calls may share runs, from the publication to the answer, with one host. */
import { mkdtemp, rm, writeFile, mkdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost, type HostConfig, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../src/onnx/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { emulateGpus } from '../support/emulate-gpus.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../support/run-program.ts';
import { columns, isConstant, modelOfSteps, rowModel } from '../support/row-models.ts';

const seed = Number(process.env['TURNTABLE_SEED']);
const { FLOAT } = ElementType;

let folder: string;
let config: HostConfig;
let host: RunningHost;

const start = async (): Promise<void> => {
  const level = process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent';
  host = await startHost(config, { logger: createLogger({ level, format: 'json' }) });
};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-rows-'));
  await mkdir(join(folder, 'functions'));
  ({ config } = loadConfig({
    flags: {
      'listen.port': '0',
      'gpu.use': 'off',
      'cpu.profiling': 'off',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
    },
  }));
  await start();
});
afterAll(async () => {
  await host.stop();
  await rm(folder, { recursive: true, force: true });
});

async function bytesOf(model: ModelProto): Promise<Buffer> {
  const path = join(folder, 'sent.onnx');
  await writeModel(model, path);
  return await readFile(path);
}

interface Answer {
  readonly status: number;
  readonly json: Record<string, unknown>;
}

async function ask(path: string, init: RequestInit = {}): Promise<Answer> {
  const reply = await fetch(`${host.url}${path}`, init);
  const text = await reply.text();
  return { status: reply.status, json: (text === '' ? {} : JSON.parse(text)) as Record<string, unknown> };
}

const publish = async (name: string, model: ModelProto, query = ''): Promise<Answer> =>
  await ask(`/functions/${name}?${query}`, { method: 'PUT', body: await bytesOf(model) });

const change = async (name: string, settings: object): Promise<Answer> =>
  await ask(`/functions/${name}`, {
    method: 'PATCH',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(settings),
  });

async function infer(name: string, rows: readonly (readonly number[])[], width = columns): Promise<number[]> {
  const inputs = [{ name: 'x', datatype: 'FP32', shape: [rows.length, width], data: rows.flat() }];
  const { status, json } = await ask(`/v2/models/${name}/infer`, { method: 'POST', body: JSON.stringify({ inputs }) });
  expect([status, JSON.stringify(json).slice(0, 300)]).toEqual([200, expect.any(String)]);
  return (json as { readonly outputs: readonly { readonly data: number[] }[] }).outputs[0]!.data;
}

/** What ONNX Runtime answers to these rows in a run of their own. */
async function alone(model: ModelProto, rows: readonly (readonly number[])[]): Promise<number[]> {
  const path = join(folder, 'alone.onnx');
  await writeModel(model, path);
  const [y] = await runOnnxRuntime(path, [
    tensorOf('x', 'FP32', [rows.length, columns], Float32Array.from(rows.flat())),
  ]);
  return [...new Float32Array(Uint8Array.from(y!.data).buffer)];
}

/** Adds 0, `step`, 2 `step` ... to its columns. */
function sizedModel(step: number): ModelProto {
  // A row has to have 12 columns, which no guess has.
  const graph = new GraphBuilder('sized');
  const x = graph.input('x', FLOAT, ['n', 'size']);
  const twelve = graph.node('Reshape', [x, graph.constant({ ints: [-1, 12] })]);
  const sum = graph.node('Reshape', [
    graph.node('Add', [
      twelve,
      graph.weight(
        'w',
        [12],
        Float32Array.from({ length: 12 }, (_, at) => step * at),
      ),
    ]),
    graph.node('Shape', [x]),
  ]);
  graph.output(sum, FLOAT, ['n', 'size'], 'y');
  return graph.build();
}

const stateOf = async (name: string): Promise<unknown> => {
  const { json } = await ask(`/functions/${name}`);
  return (json['batching'] as { readonly rows?: { readonly state: string } }).rows?.state;
};

/**
 * Publishes a model that mixes rows, and returns the sentence that refuses to join its calls: at publication, or at the
 * next setting where the check took longer than a publication waits for it, as on a busy machine.
 */
async function refusalOf(name: string, model: ModelProto): Promise<string> {
  let answer = await publish(name, model, 'batching.max=8');
  if (answer.status === 201) {
    await untilFound(name, 'alone');
    answer = await change(name, { batching: { max: 7 } });
  }
  expect(answer.status).toBe(400);
  return JSON.stringify(answer.json);
}

/** A check that a busy machine cut off is made again with a call's inputs. */
async function untilFound(name: string, found: 'independent' | 'alone'): Promise<void> {
  await vi.waitUntil(async () => {
    const state = await stateOf(name);
    if (state === 'waiting') await infer(name, [[1, 2, 3, 4]]);
    return state === found;
  });
}

async function joinedRuns(name: string): Promise<number> {
  const { json } = await ask(`/v2/models/${name}/stats`);
  const [stats] = json['model_stats'] as { readonly inference_count: number; readonly execution_count: number }[];
  return stats!.inference_count - stats!.execution_count;
}

/** Calls of one to three rows, some of them large enough to be felt by others. */
function callsOf(round: number): number[][][] {
  const scales = [1, 1, 300, 1, 1e4, 0, 1, -2e4];
  return Array.from({ length: 2 + (round % 7) }, (_, call) =>
    Array.from({ length: 1 + ((call + round) % 3) }, (__, row) =>
      Array.from(
        { length: columns },
        (___, at) => scales[(call + round) % 8]! * Math.sin(round * 7 + call * 3 + row + at),
      ),
    ),
  );
}

describe('with batching.max 8', () => {
  test(`every second of some generated models of seed ${seed} is refused by name; all others join calls, and each call gets its own answer`, async () => {
    const wrong: unknown[] = [];
    let joined = 0;
    const models = 12;
    for (let index = 0; index < models; index++) {
      const isMixing = index % 2 === 0;
      const { model, steps } = rowModel(seed + index, isMixing);
      const name = `generated-${index}`;
      if (isMixing && (await isConstant(model, folder))) continue;
      if (isMixing) {
        const message = await refusalOf(name, model);
        if (!/'batching\.max' is [78]/.test(message)) wrong.push({ steps, message });
        continue;
      }
      const { status } = await publish(name, model, 'batching.max=8&batching.delay=20ms');
      expect([status, steps]).toEqual([201, steps]);
      await untilFound(name, 'independent');
      for (let round = 0; round < 6; round++) {
        const calls = callsOf(round);
        const answers = await Promise.all(calls.map((rows) => infer(name, rows)));
        for (const [call, rows] of calls.entries()) {
          const expected = await alone(model, rows);
          const largest = Math.max(1e-3, ...expected.map(Math.abs));
          const isRight = expected.every((value, at) => Math.abs(value - answers[call]![at]!) <= 1e-3 * largest);
          if (!isRight) wrong.push({ steps, rows, expected, found: answers[call] });
        }
      }
      if ((await joinedRuns(name)) > 0) joined++;
    }
    expect(wrong).toEqual([]);
    expect(joined).toBe(models / 2);
  });

  test('what is refused at publication is refused when it is set, and when it is loaded with it; without it, it serves', async () => {
    const model = modelOfSteps(['mean of the rows'], seed);
    expect(await refusalOf('center', model)).toContain('ReduceMean');
    expect(await publish('center', model)).toMatchObject({ status: 201 });
    const set = await change('center', { batching: { max: 4 } });
    expect(set).toMatchObject({ status: 400 });
    expect(JSON.stringify(set.json)).toContain('ReduceMean');
    const triton = { max_batch_size: 8, dynamic_batching: { max_queue_delay_microseconds: 100 } };
    const load = await ask('/v2/repository/models/center/load', {
      method: 'POST',
      body: JSON.stringify({ parameters: { config: JSON.stringify(triton) } }),
    });
    expect(load).toMatchObject({ status: 400 });
    expect(JSON.stringify(load.json)).toContain("failed to load 'center'");
    expect(await infer('center', [[1, 2, 3, 4]])).toEqual([0, 0, 0, 0]);
    expect(await stateOf('center')).toBeUndefined();
    expect(await ask('/v2/models/center/config')).toMatchObject({
      json: { max_batch_size: expect.any(Number) as number },
    });
  });

  test('a model whose output does not begin with the rows is refused with the name of the output', async () => {
    const graph = new GraphBuilder('turned');
    const x = graph.input('x', FLOAT, ['n', 2]);
    graph.output(graph.node('Transpose', [x]), FLOAT, [2, 'n'], 'turned');
    const { status, json } = await publish('turned', graph.build(), 'batching.max=8');
    expect([status, JSON.stringify(json)]).toEqual([400, expect.stringContaining("output 'turned' [2,n]")]);
  });

  test('a model that runs on no guessed inputs runs calls alone until a call has shown some', async () => {
    const { status } = await publish('sized', sizedModel(1), 'batching.max=8');
    expect(status).toBe(201);
    await vi.waitUntil(async () => (await stateOf('sized')) === 'waiting');
    expect(await change('sized', { batching: { assume: 'independent' } })).toMatchObject({ status: 200 });
    expect(await stateOf('sized')).toBe('independent');
    expect(await change('sized', { batching: { assume: null } })).toMatchObject({ status: 200 });
    expect(await stateOf('sized')).toBe('waiting');
    const row = Array.from({ length: 12 }, (_, at) => at / 10);
    expect(await infer('sized', [row], 12)).toEqual(row.map((value, at) => expect.closeTo(value + at, 4) as number));
    await vi.waitUntil(async () => (await stateOf('sized')) === 'independent');
  });

  test('what was found counts after a restart, and a folder function that mixes rows serves its calls alone, and a handler shows its sizes', async () => {
    await publish('kept', modelOfSteps(['gemm', 'relu'], seed), 'batching.max=8');
    await untilFound('kept', 'independent');
    await mkdir(join(folder, 'functions', 'mixing'));
    await writeModel(modelOfSteps(['softmax over rows'], seed), join(folder, 'functions', 'mixing', 'model.onnx'));
    await writeFile(join(folder, 'functions', 'mixing', 'function.json'), JSON.stringify({ batching: { max: 4 } }));
    const handled = join(folder, 'functions', 'handled');
    await mkdir(handled);
    await writeModel(sizedModel(2), join(handled, 'model.onnx'));
    await writeFile(
      join(handled, 'function.json'),
      JSON.stringify({ handler: 'handler.js', batching: { max: 4 }, isolation: 'own' }),
    );
    await writeFile(
      join(handled, 'handler.js'),
      `export const preprocess = ({ body }) => [
        { name: 'x', datatype: 'FP32', shape: [1, 12], data: Float32Array.from(String(Buffer.from(body)).split(',')) }];
      export const postprocess = ([y]) => Array.from(y.data).join();`,
    );
    await host.stop();
    await start();
    await untilFound('kept', 'independent');
    await untilFound('mixing', 'alone');
    expect(await infer('mixing', [[1, 2, 3, 4]])).toEqual([1, 1, 1, 1]);
    const metrics = await (await fetch(`${host.url}/metrics`)).text();
    expect(metrics).toMatch(/turntable_joining\{[^}]*function="mixing"[^}]*rows="alone"[^}]*\} 1/);
    const rows = await ask('/api/functions');
    expect(JSON.stringify(rows.json)).toContain('Softmax');
    // What its handler makes of a call is known in the instance alone.
    await vi.waitUntil(async () => (await stateOf('handled')) === 'waiting');
    const answer = await fetch(`${host.url}/function/handled`, { method: 'POST', body: '1,1,1,1,1,1,1,1,1,1,1,1' });
    expect([answer.status, await answer.text()]).toEqual([200, '1,3,5,7,9,11,13,15,17,19,21,23']);
    await vi.waitUntil(async () => (await stateOf('handled')) === 'independent');
  });
});

const oneRow = [tensorOf('x', 'FP32', [1, columns], Float32Array.of(1, 2, 3, 4))];

describe.skipIf(emulatorMissing)('on a GPU', () => {
  test('of functions in folders with batching.max 8, those that mix rows join no calls, the others do, and every answer is right', async () => {
    await host.stop();
    const cases = [
      { name: 'independent-gpu', steps: ['product', 'tanh', 'gemm'], isMixing: false },
      { name: 'mixing-gpu', steps: ['softmax over rows', 'product'], isMixing: true },
      { name: 'threshold-gpu', steps: ['threshold on the maximum', 'relu'], isMixing: true },
    ];
    for (const { name, steps } of cases) {
      const model = modelOfSteps(steps, seed);
      await mkdir(join(folder, 'functions', name));
      await writeModel(model, join(folder, 'functions', name, 'model.onnx'));
      const settings = { slo: '60s', batching: { max: 8 } };
      await writeFile(join(folder, 'functions', name, 'function.json'), JSON.stringify(settings));
    }
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    const cpuConfig = config;
    config = { ...config, gpu: { ...config.gpu, use: 'auto', hostBytes: 64 * 2 ** 20 } };
    await start();
    await host.gpus!.settled();
    for (const { name, isMixing } of cases) {
      const key = `${name}@1`;
      await untilFound(name, isMixing ? 'alone' : 'independent');
      if (isMixing) continue;
      // Each call takes one step towards joined runs.
      await vi.waitUntil(async () => {
        await infer(name, [[1, 2, 3, 4]]);
        return host.gpus!.joinOf(key, oneRow) !== undefined;
      });
    }
    const wrong: unknown[] = [];
    const joining: string[] = [];
    for (const { name, steps } of cases) {
      const model = modelOfSteps(steps, seed);
      for (let round = 0; round < 7; round++) {
        const calls = callsOf(round).map((rows) => rows.slice(0, 1));
        const answers = await Promise.all(calls.map((rows) => infer(name, rows)));
        for (const [call, rows] of calls.entries()) {
          const expected = await alone(model, rows);
          const largest = Math.max(1e-3, ...expected.map(Math.abs));
          const isRight = expected.every((value, at) => Math.abs(value - answers[call]![at]!) <= 1e-3 * largest);
          if (!isRight) wrong.push({ name, rows, expected, found: answers[call] });
        }
      }
      if (host.gpus!.joinOf(`${name}@1`, oneRow) !== undefined) joining.push(name);
    }
    expect(wrong).toEqual([]);
    expect(joining).toEqual(['independent-gpu']);
    config = cpuConfig;
  });
});
