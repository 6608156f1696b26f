/** Triton's Python client against a real host: its exact requests, and the answers it must get. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ElementType, serializeModel } from '../../src/onnx/index.ts';
import { bytesElements } from '../../src/tensor/index.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { addFunction, identity, simple } from '../support/triton-functions.ts';

interface Step {
  readonly client: string;
  readonly method: string;
  readonly path: string;
  readonly json?: object;
  readonly text?: string;
  readonly binary?: string;
  readonly status: number;
  readonly reply?: object;
  readonly has?: object;
  readonly error?: string;
  readonly elements?: readonly (readonly (string | number)[])[];
}

const { steps } = JSON.parse(await readFile(new URL('tritonclient-http.json', import.meta.url), 'utf8')) as {
  steps: readonly Step[];
};

let host: ReluHost;
beforeAll(async () => {
  host = await startReluHost([], {
    prepare: async (functions) => {
      await addFunction(functions, 'simple', simple(ElementType.INT32), {});
      const strings = identity('strings', 'INPUT0', 'OUTPUT0', ElementType.STRING, 'n');
      await addFunction(functions, 'simple_identity', strings, {});
      const classes = identity('classes', 'data', 'scores', ElementType.FLOAT, 4);
      await addFunction(functions, 'classes', classes, { labels: '@labels.txt' });
    },
  });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

/** Sends the client's own request, and splits its reply. */
async function perform({
  method,
  path,
  json,
  text,
  binary,
}: Step): Promise<{ status: number; body: unknown; data: Buffer }> {
  const head = Buffer.from(json === undefined ? (text ?? '') : JSON.stringify(json));
  const body = Buffer.concat([head, Buffer.from(binary ?? '', 'base64')]);
  const reply = await fetch(host.url + path, {
    method,
    ...(method === 'GET' ? {} : { body }),
    headers: binary === undefined ? {} : { 'Inference-Header-Content-Length': String(head.byteLength) },
  });
  const bytes = Buffer.from(await reply.arrayBuffer());
  const length = Number(reply.headers.get('inference-header-content-length') ?? bytes.byteLength);
  const parsed = length === 0 ? undefined : (JSON.parse(bytes.subarray(0, length).toString()) as unknown);
  return { status: reply.status, body: parsed, data: bytes.subarray(length) };
}

function elementsOf(body: unknown, data: Buffer): (string | number)[][] {
  const { outputs } = body as {
    outputs: { datatype: string; shape: number[]; parameters?: { binary_data_size?: number } }[];
  };
  let at = 0;
  return outputs.flatMap(({ datatype, parameters }): (string | number)[][] => {
    const size = parameters?.binary_data_size;
    if (size === undefined) return [];
    const bytes = new Uint8Array(data.subarray(at, (at += size)));
    if (datatype !== 'BYTES') return [[...new Int32Array(bytes.buffer)]];
    const texts = bytesElements({ name: '', datatype, shape: [], data: bytes });
    return [Array.from(texts, (element) => Buffer.from(element).toString())];
  });
}

describe("Triton's Python client over HTTP", () => {
  test.each(steps)('$client', async (step) => {
    const { status, body, data } = await perform(step);
    const { reply = {}, error, has, elements } = step;
    expect({ status, body }).toMatchObject({ status: step.status });
    expect(body ?? {}).toMatchObject(reply);
    expect((body as { error?: string } | undefined)?.error ?? '').toContain(error ?? '');
    expect(has === undefined ? [has] : body).toContainEqual(has);
    expect(elements === undefined ? elements : elementsOf(body, data)).toEqual(elements);
  });
});

const parameters = (file: Uint8Array): object => ({
  parameters: { config: '{"backend":"onnxruntime"}', 'file:1/model.onnx': Buffer.from(file).toString('base64') },
});

const load = (name: string, body: object): Promise<Response> =>
  fetch(`${host.url}/v2/repository/models/${name}/load`, { method: 'POST', body: JSON.stringify(body) });

describe('loading with files', () => {
  test('makes an unknown model, and another one under the next version', async () => {
    const first = serializeModel(identity('first', 'x', 'y', ElementType.FLOAT, 2).build());
    expect((await load('brought', parameters(first))).status).toBe(200);
    expect((await load('brought', parameters(first))).status).toBe(200);
    const second = serializeModel(identity('second', 'x', 'z', ElementType.FLOAT, 2).build());
    expect((await load('brought', parameters(second))).status).toBe(200);
    const metadata = (await (await fetch(`${host.url}/v2/models/brought`)).json()) as object;
    expect(metadata).toMatchObject({ versions: ['1', '2'], outputs: [{ name: 'z' }] });
  });

  test('loading with files is refused by name if the file is not base64, or not a model', async () => {
    const broken = { parameters: { config: '{}', 'file:1/model.onnx': 'not base64!' } };
    expect(await (await load('broken', broken)).text()).toMatch(
      /failed to load 'broken': .*'model.onnx' is not base64/,
    );
    expect((await load('broken', parameters(Buffer.from('no model')))).status).toBe(422);
    const bare = await load('broken', { parameters: { 'file:1/model.onnx': '' } });
    expect(await bare.text()).toMatch(/without 'config'/);
  });
});

test("calls with bad input count as the client's failures, and are visible", async () => {
  const body = JSON.stringify({ inputs: [{ name: 'data', shape: [1, 4], datatype: 'FP32', data: ['x'] }] });
  const before = await rowOfClasses();
  for (let count = 0; count < 5; count++) {
    expect((await fetch(`${host.url}/v2/models/classes/infer`, { method: 'POST', body })).status).toBe(400);
  }
  const text = await (await fetch(`${host.url}/metrics`)).text();
  const failed = (reason: string): number =>
    Number(
      new RegExp(`nv_inference_request_failure\\{model="classes",version="1",reason="${reason}"\\} (\\d+)`).exec(
        text,
      )?.[1],
    );
  expect(failed('OTHER')).toBeGreaterThanOrEqual(5);
  expect(failed('BACKEND')).toBe(0);
  const row = await rowOfClasses();
  expect(row?.statuses.find(({ status }) => status === 400)?.count).toBeGreaterThanOrEqual(5);
  // Nothing ran: they keep no model loaded, and are no use of it.
  expect(row?.lastUseMs).toBe(before?.lastUseMs);
});

async function rowOfClasses() {
  const page = (await (await fetch(`${host.url}/api/functions`)).json()) as {
    functions: { name: string; lastUseMs: number; statuses: { status: number; count: number }[] }[];
  };
  return page.functions.find(({ name }) => name === 'classes');
}

const infer = (at: ReluHost): Promise<Response> =>
  fetch(`${at.url}/function/relu`, { method: 'POST', body: '{"input":[[1,2,3,4]]}' });

const isReady = async (at: ReluHost): Promise<boolean> => (await fetch(`${at.url}/v2/models/relu/ready`)).ok;

const unload = (at: ReluHost): Promise<Response> =>
  fetch(`${at.url}/v2/repository/models/relu/unload`, { method: 'POST' });

test('an unloaded function answers its next call, or waits to be loaded if the host is configured so', async () => {
  await using lazy = await startReluHost(['relu']);
  await unload(lazy);
  expect(await isReady(lazy)).toBe(false);
  expect((await infer(lazy)).status).toBe(200);
  expect(await isReady(lazy)).toBe(true);
  await using explicit = await startReluHost(['relu'], { flags: { unloaded: 'until-load' } });
  await unload(explicit);
  expect([(await infer(explicit)).status, (await infer(explicit)).headers.get('x-turntable-error')]).toEqual([
    503,
    'unloaded',
  ]);
  expect((await fetch(`${explicit.url}/v2/models/relu`)).status).toBe(503);
  await fetch(`${explicit.url}/v2/repository/models/relu/load`, { method: 'POST' });
  expect([await isReady(explicit), (await infer(explicit)).status]).toEqual([true, 200]);
});
