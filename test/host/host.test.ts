/** The whole host on real processes: store, validator, pools and HTTP together. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { checkListen, loadConfig, startHost, type HostConfig, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { buildArchitecture, ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { heap } from '../../src/process/index.ts';
import { writeReluModel, writeTableModel } from '../support/models.ts';

let folder: string;
let host: RunningHost;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-host-'));
  await mkdir(join(folder, 'functions'));
});

afterEach(async () => {
  vi.restoreAllMocks();
  await host?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function start(flags: Record<string, string> = {}): Promise<void> {
  host = await startHost(configOf(flags), { logger: createLogger({ level: 'silent', format: 'json' }) });
}

function configOf(flags: Record<string, string>): HostConfig {
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      ...flags,
    },
  });
  checkListen(config);
  return config;
}

async function addRelu(name: string, settings: object = {}): Promise<void> {
  const place = join(folder, 'functions', name);
  await mkdir(place, { recursive: true });
  await writeReluModel(place);
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'relu.onnx', ...settings }));
}

/** A handler that always says `word`. */
function saying(word: string): string {
  return `
    export const preprocess = () => [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
    export const postprocess = (): string => '${word}';`;
}

const neverFits =
  /^no place runs function 'relu': a session of relu@1 takes about \d+ K?B, more than the 10 B that all functions/;

const call = (path: string, init: RequestInit = {}): Promise<Response> => fetch(`${host.url}${path}`, init);
const invoke = (name: string, input: unknown): Promise<Response> =>
  call(`/function/${name}`, { method: 'POST', body: JSON.stringify({ input }) });
const outputsOf = (name: string, inputs: number[][]): Promise<unknown[]> =>
  Promise.all(inputs.map(async (input) => await (await invoke(name, [input])).json()));
const upload = async (name: string, path: string, query = ''): Promise<Response> =>
  await call(`/functions/${name}${query}`, { method: 'PUT', body: await readFile(path) });
async function sample(series: string): Promise<number | undefined> {
  const text = await (await call('/metrics')).text();
  const line = text.split('\n').find((candidate) => candidate.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

describe('a function in the functions folder', () => {
  test('answers as soon as the host is ready', async () => {
    await addRelu('relu');
    const [kept, trimmed] = [vi.spyOn(heap, 'keepForAnswers'), vi.spyOn(heap, 'trimWhenIdle')];
    await start();
    expect([kept, trimmed].map((asked) => asked.mock.calls.length)).toEqual([1, 0]);
    const reply = await invoke('relu', [[1, -2, 3, -4]]);
    expect(await reply.json()).toEqual({ output: [[1, 0, 3, 0]] });
    expect(reply.headers.get('x-model-cold-start')).toBe('true');
    expect(reply.headers.get('x-turntable-placement')).toBe('cpu pool cold');
    expect((await invoke('relu', [[1, -2, 3, -4]])).headers.get('x-turntable-placement')).toBe('cpu pool warm');
    // Of the memory of answers: once they have ceased, it goes back to the system.
    expect(trimmed).toHaveBeenCalledTimes(2);
  });

  test('is loaded once for all calls that come while it is cold', async () => {
    await addRelu('relu', { cpu: { instances: 1 } });
    await start();
    const replies = await Promise.all(Array.from({ length: 12 }, (_, index) => invoke('relu', [[index, 0, 0, 0]])));
    const outputs = await Promise.all(replies.map(async (reply) => await reply.json()));
    expect(outputs).toEqual(Array.from({ length: 12 }, (_, index) => ({ output: [[index, 0, 0, 0]] })));
    expect(await sample('modelmesh_loadmodel_milliseconds_count')).toBe(1);
    // Calls during the load waited for it; later ones found it loaded.
    const cold = await sample('turntable_cold_starts_total{function="relu",plan="cpu"}');
    expect(cold).toBeGreaterThanOrEqual(1);
    expect(cold).toBeLessThanOrEqual(12);
  });

  test('runs with as many threads as there are cores, whatever the configuration of a larger machine says', async () => {
    await addRelu('relu', { cpu: { threads: 64 } });
    await start({ 'cpu.cores': '4096', 'cpu.threads': '64' });
    expect((await call('/v2/models/relu/ready')).status).toBe(200);
    expect((await call('/v2/repository/models/relu/load', { method: 'POST' })).status).toBe(200);
    const reply = await invoke('relu', [[1, -2, 3, -4]]);
    expect(await reply.json()).toEqual({ output: [[1, 0, 3, 0]] });
    const { parameters } = (await (await call('/v2/models/relu/config')).json()) as {
      parameters: { threads: { string_value: string } };
    };
    expect(Number(parameters.threads.string_value)).toBeLessThanOrEqual(availableParallelism());
  });

  test('is refused in words if it never fits into the memory for functions', async () => {
    await addRelu('relu');
    await start({ 'cpu.memory': '10B' });
    const log = await call('/functions/relu/log');
    expect(await log.text()).toMatch(
      /the CPU cannot run it: a session of relu@1 takes about \d+ K?B, more than the 10 B/,
    );
    const reply = await invoke('relu', [[1, 2, 3, 4]]);
    expect(reply.status).toBe(503);
    expect(await reply.json()).toEqual({
      error: expect.stringMatching(neverFits) as string,
    });
    const ready = await call('/v2/models/relu/ready');
    expect(ready.status).toBe(503);
    expect(await ready.json()).toEqual({ error: expect.stringMatching(neverFits) as string });
    const load = await call('/v2/repository/models/relu/load', { method: 'POST' });
    expect(load.status).toBe(503);
    expect(await load.json()).toEqual({ error: expect.stringMatching(neverFits) as string });
    const published = await upload('other', join(folder, 'functions', 'relu', 'relu.onnx'));
    expect(published.status).toBe(503);
    expect(await published.json()).toEqual({
      error: expect.stringMatching(/^no place runs function 'other': a session of other takes about /) as string,
    });
    expect((await call('/functions/other')).status).toBe(404);
  });

  test('takes as many rows as its first dimension fixes, or one if its inputs have none in common', async () => {
    const functions = [
      { name: 'fixed', shapes: [[3, 4], [3]], batch: 3 },
      { name: 'none', shapes: [[3, 4], [4]], batch: 1 },
      { name: 'open', shapes: [['n', 4], ['n']], batch: 8 },
    ];
    for (const { name, shapes } of functions) {
      const graph = new GraphBuilder(name);
      for (const [at, shape] of shapes.entries()) {
        const relu = graph.node('Relu', [graph.input(`x${at}`, ElementType.FLOAT, shape)]);
        graph.output(relu, ElementType.FLOAT, shape);
      }
      const place = join(folder, 'functions', name);
      await mkdir(place);
      await writeModel(graph.build(), join(place, 'model.onnx'));
      await writeFile(join(place, 'function.json'), JSON.stringify({ batching: { max: 8 } }));
    }
    await start();
    for (const { name, batch } of functions) {
      const labels = `function="${name}",version="1",instances="0",threads="1",batch="${batch}"`;
      // Until the check of its rows is done, the open one takes one, too.
      await expect.poll(() => sample(`turntable_pool_configuration_info{${labels}}`)).toBe(1);
    }
  });

  test('that is pinned is warm for its first caller', async () => {
    await addRelu('relu', { pinned: true });
    await start();
    await call('/v2/repository/models/relu/load', { method: 'POST' });
    expect((await invoke('relu', [[1, 2, 3, 4]])).headers.get('x-model-cold-start')).toBe('false');
  });

  test('shows an edited handler after a load, without a restart', async () => {
    await addRelu('speaking', { handler: 'handler.ts' });
    const path = join(folder, 'functions', 'speaking', 'handler.ts');
    await writeFile(path, saying('before'));
    await start();
    expect(await (await call('/function/speaking', { method: 'POST', body: '' })).text()).toBe('before');

    await writeFile(path, saying('after'));
    expect((await call('/v2/repository/models/speaking/load', { method: 'POST' })).status).toBe(200);

    expect(await (await call('/function/speaking', { method: 'POST', body: '' })).text()).toBe('after');
  });

  test('that was added since the start is available after a load', async () => {
    await start();
    expect((await call('/v2/repository/models/relu/load', { method: 'POST' })).status).toBe(404);
    await addRelu('relu');
    expect((await call('/v2/repository/models/relu/load', { method: 'POST' })).status).toBe(200);
    expect(await (await invoke('relu', [[1, -2, 3, -4]])).json()).toEqual({ output: [[1, 0, 3, 0]] });
  });

  test('with other weights beside the same model answers with them after a load', async () => {
    const place = join(folder, 'functions', 'dense');
    await mkdir(place);
    const { model } = buildArchitecture('mlp', { layers: '2', input: '4', hidden: '512', output: '4' }, 1);
    await writeModel(model, join(place, 'model.onnx'), { externalData: 'always' });
    await writeFile(join(place, 'function.json'), '{}');
    await start();
    const [one, other] = await outputsOf('dense', [
      [1, 2, 3, 4],
      [8, -7, 6, -5],
    ]);
    expect(one).not.toEqual(other);

    const data = join(place, 'model.onnx.data');
    const { length } = await readFile(data);
    await writeFile(data, Buffer.alloc(length));
    expect((await call('/v2/repository/models/dense/load', { method: 'POST' })).status).toBe(200);
    // With zeros for weights only the biases are left, for any input.
    const [zeros, zerosToo] = await outputsOf('dense', [
      [1, 2, 3, 4],
      [8, -7, 6, -5],
    ]);
    expect(zeros).toEqual(zerosToo);
  });

  test('that is broken leaves the others alone and says why', async () => {
    await addRelu('relu');
    await mkdir(join(folder, 'functions', 'broken'));
    await writeFile(join(folder, 'functions', 'broken', 'function.json'), '{"slo": "soon"}');
    await start();
    expect((await invoke('relu', [[1, 2, 3, 4]])).status).toBe(200);
    const reply = await invoke('broken', [[1]]);
    expect(reply.status).toBe(503);
    expect(((await reply.json()) as { error: string }).error).toMatch(/broken.*slo/);
  });
});

describe('an uploaded function', () => {
  test('answers at once, and again after a restart', async () => {
    await start();
    const path = await writeReluModel(folder);
    expect((await upload('mine', path, '?slo=250ms')).status).toBe(201);
    expect(await (await invoke('mine', [[-1, 1, -1, 1]])).json()).toEqual({ output: [[0, 1, 0, 1]] });

    await host.stop();
    await start();

    expect(await (await invoke('mine', [[-1, 1, -1, 1]])).json()).toEqual({ output: [[0, 1, 0, 1]] });
    expect(await (await call('/functions/mine')).json()).toMatchObject({ version: '1', slo_ms: 250 });
  });

  test('still serves when a new version is refused', async () => {
    await start();
    await upload('mine', await writeReluModel(folder));
    const garbage = join(folder, 'garbage.onnx');
    await writeFile(garbage, 'this is no model at all');

    const refused = await upload('mine', garbage);

    expect(refused.status).toBe(422);
    expect(await refused.json()).toMatchObject({ error: expect.stringContaining('model') as string });
    expect(await (await invoke('mine', [[-1, 1, -1, 1]])).json()).toEqual({ output: [[0, 1, 0, 1]] });
    expect(await (await call('/functions/mine')).json()).toMatchObject({ version: '1' });
  });

  test('is switched to a new version without failing a single call', async () => {
    await start();
    await upload('mine', await writeReluModel(folder));
    const statuses: number[] = [];
    const switched = new AbortController();
    const caller = async (): Promise<void> => {
      while (!switched.signal.aborted) {
        const reply = await call('/function/mine', { method: 'POST', body: '{"input": [[1, 1, 1, 1]]}' });
        statuses.push(reply.status);
        await reply.arrayBuffer();
      }
    };
    const callers = [caller(), caller(), caller()];
    const wide = await writeReluModel(folder, 'width');
    expect((await upload('mine', wide)).status).toBe(201);
    switched.abort();
    await Promise.all(callers);
    expect(new Set(statuses)).toEqual(new Set([200]));
    const now = await invoke('mine', [[1, -1]]);
    expect(now.headers.get('x-model-id')).toBe('mine@2');
    expect(await now.json()).toEqual({ output: [[1, 0]] });
    const old = await call('/function/mine/versions/1', { method: 'POST', body: '{"input": [[1, 1, 1, -1]]}' });
    expect(await old.json()).toEqual({ output: [[1, 1, 1, 0]] });
  });

  test('is gone after a delete, with its instances', async () => {
    await start();
    await upload('mine', await writeTableModel(folder));
    await call('/v2/models/mine/infer', {
      method: 'POST',
      body: JSON.stringify({ inputs: [{ name: 'x', shape: [1], datatype: 'INT64', data: [2] }] }),
    });
    expect((await call('/functions/mine', { method: 'DELETE' })).status).toBe(204);
    expect((await invoke('mine', [1])).status).toBe(404);
    expect(await sample('modelmesh_models_managed_total')).toBe(0);
    await expect.poll(() => sample('modelmesh_models_loaded_total')).toBe(0);
  });
});

describe('the host', () => {
  test('refuses to listen beyond loopback without an API key', () => {
    expect(() => configOf({ 'listen.host': '0.0.0.0' })).toThrow(/API key/i);
  });

  test('finishes what it accepted before it stops', async () => {
    await addRelu('relu');
    await start();
    const accepted = Array.from({ length: 8 }, (_, index) => invoke('relu', [[index, 0, 0, 0]]));
    // The first answer shows that the host has accepted the calls; the others then run or are queued.
    await Promise.race(accepted);
    const stopped = host.stop();
    const statuses = await Promise.all(accepted.map(async (reply) => (await reply).status));
    expect(statuses).toEqual(Array.from({ length: 8 }, () => 200));
    expect(await stopped).toBe(true);
    await expect(call('/v2/health/live')).rejects.toThrow(/fetch failed/);
  });
});
