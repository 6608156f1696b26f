/** Functions that are computed in fewer bits than others of the same host, on the emulated driver. */
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EventAnswer, FunctionsAnswer } from '../../../src/host/dashboard/api-types.ts';
import { placedText } from '../../../src/cli/ps.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';

const [columns, hidden] = [64, 512];
/** Of the products' weights in 32 bits. */
const weightBytes = 4 * 2 * columns * hidden;
/** Beyond what 16 bits with 5 of them for the exponent can hold. */
const large = 1e5;

/** Its weights fit into such 16 bits, and sums of their products do not. */
const steep = 3e4;

/** Two products; between them all values are about this. @param factor of the first product's weights */
function model(level: number, factor = 0.1): ModelProto {
  const graph = new GraphBuilder('products');
  const x = graph.input('x', ElementType.FLOAT, [1, columns]);
  const weight = (name: string, shape: readonly [number, number], factor: number): string =>
    graph.weight(
      name,
      shape,
      Float32Array.from({ length: shape[0] * shape[1] }, (_, at) => factor * Math.sin(at * 0.7)),
    );
  const bias = graph.weight('bias', [hidden], new Float32Array(hidden).fill(level));
  const inner = graph.node('Relu', [graph.node('Gemm', [x, weight('in', [columns, hidden], factor), bias])]);
  graph.output(
    graph.node('MatMul', [inner, weight('out', [hidden, columns], 0.1)]),
    ElementType.FLOAT,
    [1, columns],
    'y',
  );
  return graph.build();
}

let folder: string;
let host: RunningHost;

/** @param precision of functions that say nothing of it */
function hostIn(dataDir: string, precision: string): Promise<RunningHost> {
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, dataDir),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.memory': '8MiB',
      'gpu.hostMemory': '32MiB',
      'gpu.profileIterations': '1',
      'gpu.hybrid': 'off',
      'gpu.precision': precision,
      // All of it is in the memory of the GPU.
      'gpu.mode': 'pipeswitch',
    },
  });
  return startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
}

const values = Array.from({ length: columns }, (_, at) => Math.cos(at));

async function call(name: string): Promise<{ readonly placement: string; readonly y: readonly number[] }> {
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Turntable-SLO': '60s' },
    body: JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, columns], data: values }] }),
  });
  expect(reply.status).toBe(200);
  const { outputs } = (await reply.json()) as { outputs: readonly [{ readonly data: readonly number[] }] };
  return { placement: reply.headers.get('x-turntable-placement') ?? '', y: outputs[0].data };
}

const isHalf = ({ placement }: { readonly placement: string }): boolean => placement.endsWith(', fp16');

async function row(name: string): Promise<FunctionsAnswer['functions'][number]> {
  const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
  return functions.find((each) => each.name === name)!;
}

async function settled(name: string, placement: RegExp): Promise<void> {
  await expect.poll(async () => (await call(name)).placement).toMatch(placement);
}

async function change(name: string, settings: object): Promise<{ readonly status: number; readonly text: string }> {
  const reply = await fetch(`${host.url}/functions/${name}`, {
    method: 'PATCH',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(settings),
  });
  return { status: reply.status, text: await reply.text() };
}

async function publish(name: string, level: number, query = ''): Promise<void> {
  const body = await readFile(join(folder, `${level}.onnx`));
  const reply = await fetch(`${host.url}/functions/${name}?slo=60s${query}`, { method: 'PUT', body });
  expect([reply.status, await reply.text()]).toEqual([201, expect.any(String)]);
}

describe.skipIf(emulatorMissing)('the precision of a function', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-precision-'));
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    await mkdir(join(folder, 'functions'));
    host = await hostIn('data', 'exact');
    for (const level of [0, large]) await writeModel(model(level), join(folder, `${level}.onnx`));
    await writeModel(model(0, steep), join(folder, `${steep}.onnx`));
  });

  afterAll(async () => {
    await host.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('the precision of a function is its own: header, plan, memory and values differ from those of the same model in 32 bits', async () => {
    await publish('exact', 0);
    await publish('half', 0, '&gpu.precision=fp16');
    await settled('exact', /^gpu0 \w+( \w+)?$/);
    await settled('half', /^gpu0 \w+( \w+)?, fp16$/);
    const [exact, half] = [await call('exact'), await call('half')];
    const largest = Math.max(...exact.y.map(Math.abs));
    const differences = half.y.map((value, at) => Math.abs(value - exact.y[at]!) / largest);
    expect(Math.max(...differences)).toBeLessThan(0.02);
    // In 32 bits they would be equal: it is the same program.
    expect(Math.max(...differences)).toBeGreaterThan(0);
    const [whole, less] = [await row('exact'), await row('half')];
    expect(whole.gpuBytes - less.gpuBytes).toBeGreaterThanOrEqual(weightBytes / 2);
    // What was measured when it was published, of an output's largest value.
    const off = Number(/, fp16, (\S+) off$/.exec(less.plan)?.[1]);
    expect(off).toBeGreaterThan(0);
    expect(off).toBeLessThan(0.02);
    expect(whole.plan).not.toMatch(/fp16/);
    const told = (await (await fetch(`${host.url}/functions/half`)).json()) as object;
    expect(told).toMatchObject({ gpu: { precision: 'fp16' } });
  });

  test('ps and the history of cold starts say what was computed in fewer bits, and nothing of what was not', async () => {
    const listed = placedText(await (await fetch(`${host.url}/api/functions`)).json(), Date.now()).split('\n');
    expect(listed.find((line) => line.startsWith('half@'))).toMatch(/, fp16, \S+ off/);
    expect(listed.find((line) => line.startsWith('exact@'))).not.toMatch(/fp16/);
    const { events } = (await (await fetch(`${host.url}/api/event-log`)).json()) as {
      readonly events: readonly EventAnswer[];
    };
    const told = (name: string): string[] =>
      events.flatMap(({ kind, functionName, text }) =>
        kind === 'cold-start' && functionName === name && text.includes('gpu0') ? [text] : [],
      );
    for (const text of told('half')) expect(text).toMatch(/gpu0 .*, fp16/);
    for (const text of told('exact')) expect(text).not.toMatch(/fp16/);
    expect(told('half').length).toBeGreaterThan(0);
  });

  test('calls under way while the precision changes say what they were computed in', async () => {
    const exact = JSON.stringify((await call('exact')).y);
    const answers: Awaited<ReturnType<typeof call>>[] = [];
    const over = new AbortController();
    const connection = async (): Promise<void> => {
      while (!over.signal.aborted) answers.push(await call('half'));
    };
    const connections = Array.from({ length: 4 }, connection);
    for (const precision of ['exact', 'fp16', 'exact', 'fp16']) {
      expect(await change('half', { gpu: { precision } })).toMatchObject({ status: 200 });
      await settled('half', precision === 'exact' ? /^gpu0 [^,]*$/ : /^gpu0 .*, fp16$|^gpu0 \w+, fp16$/);
    }
    over.abort();
    await Promise.all(connections);
    const onGpu = answers.filter(({ placement }) => placement.startsWith('gpu0'));
    expect(new Set(onGpu.map(isHalf))).toEqual(new Set([true, false]));
    const wrong = onGpu.filter((answer) => (JSON.stringify(answer.y) === exact) === isHalf(answer));
    expect(wrong.map(({ placement }) => placement)).toEqual([]);
  });

  test('the precision of a function changes without a new version, and back to the host’s; what is none is refused by name', async () => {
    expect(await change('half', { gpu: { precision: 'tf32' } })).toMatchObject({ status: 200 });
    await settled('half', /^gpu0 .*, tf32$|^gpu0 \w+, tf32$/);
    expect(await change('half', { 'gpu.precision': null })).toMatchObject({ status: 200 });
    // It goes back to what was published.
    await settled('half', /^gpu0 .*fp16$/);
    const refused = await change('half', { gpu: { precision: 'half' } });
    expect(refused.status).toBe(400);
    expect(refused.text).toMatch(/'gpu\.precision' is .*half.*exact.*tf32.*fp16.*bf16/);
  });

  test('the precision of a function in which the values do not fit keeps the function on the CPU, with the reason; another one serves', async () => {
    await publish('weight', large, '&gpu.precision=fp16');
    await publish('overflows', steep, '&gpu.precision=fp16');
    await publish('fits', large, '&gpu.precision=bf16');
    await settled('fits', /^gpu0 .*, bf16$|^gpu0 \w+, bf16$/);
    for (const name of ['weight', 'overflows']) await settled(name, /^cpu pool/);
    await expect.poll(async () => (await row('overflows')).plan).toMatch(/^CPU pool: .*output 'y'/);
    const reason = /^CPU pool: refused: element 0 of weight 'bias' is too large for FP16/;
    await expect.poll(async () => (await row('weight')).plan).toMatch(reason);
    const [right, near] = [await call('weight'), await call('fits')];
    const largest = Math.max(...right.y.map(Math.abs));
    for (const [at, value] of near.y.entries()) expect(Math.abs(value - right.y[at]!)).toBeLessThan(0.05 * largest);
  });

  test('the precision of the host is that of functions that say nothing, and one that says exact never runs in fewer bits', async () => {
    const right = (await call('exact')).y;
    await host.stop();
    host = await hostIn('half', 'fp16');
    await publish('follows', 0);
    await publish('exact', 0, '&gpu.precision=exact');
    await settled('follows', /^gpu0 .*, fp16$|^gpu0 \w+, fp16$/);
    await settled('exact', /^gpu0 [^,]*$/);
    expect((await call('exact')).y).toEqual(right);
    expect((await call('follows')).y).not.toEqual(right);
    expect((await row('exact')).plan).not.toMatch(/fp16/);
  });
});
