/** `null` in a JSON body: a client generated from a schema sends it for what it leaves out. */
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { writeReluModel } from '../support/models.ts';

let folder: string;
let host: RunningHost;
let model: Buffer;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-null-'));
  const { config } = loadConfig({
    flags: { 'listen.port': '0', dataDir: join(folder, 'data'), functionsDir: folder, 'cpu.cores': '1' },
  });
  host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
  await writeReluModel(folder);
  model = await readFile(join(folder, 'relu.onnx'));
  await fetch(`${host.url}/functions/relu`, { method: 'PUT', body: model });
});

afterAll(async () => {
  await host?.stop();
  await rm(folder, { recursive: true, force: true });
});

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
type Path = readonly (string | number)[];

/** The path of every member of every object; numbers and texts of arrays have none. */
function memberPaths(value: Json, at: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [];
  if (Array.isArray(value)) return value.flatMap((item: Json, index) => memberPaths(item, [...at, index]));
  return Object.entries(value).flatMap(([key, member]) => {
    const path: Path = [...at, key];
    const below = memberPaths(member, path);
    below.unshift(path);
    return below;
  });
}

/** The same with the member at `path` set to null, or without it. */
function changed(value: Json, [key, ...rest]: Path, to: 'null' | 'absent'): Json {
  if (Array.isArray(value)) {
    return value.map((item: Json, index) => (index === key ? changed(item, rest, to) : item));
  }
  const entries = Object.entries(value as Record<string, Json>).flatMap(([name, member]): [string, Json][] => {
    if (name !== key) return [[name, member]];
    if (rest.length > 0) return [[name, changed(member, rest, to)]];
    return to === 'null' ? [[name, null]] : [];
  });
  return Object.fromEntries(entries);
}

interface Asked {
  readonly method?: string;
  readonly path: string;
  readonly body: Json;
  readonly tail?: Buffer;
}

async function replyTo({ method = 'POST', path, body, tail }: Asked): Promise<{ status: number; text: string }> {
  const json = Buffer.from(JSON.stringify(body));
  const headers: Record<string, string> = { 'content-type': 'application/json' };
  if (tail !== undefined) headers['inference-header-content-length'] = String(json.byteLength);
  const sent = tail === undefined ? json : Buffer.concat([json, tail]);
  const reply = await fetch(host.url + path, { method, headers, body: sent });
  return { status: reply.status, text: await reply.text() };
}

const data = [1, -2, 3, -4];
const tensor = { name: 'x', shape: [1, 4], datatype: 'FP32', parameters: { content_type: 'np' }, data };
const infer: Json = {
  id: 'a',
  parameters: { timeout: 20_000_000, priority: 2, binary_data_output: false, sequence_id: 0 },
  inputs: [tensor],
  outputs: [{ name: 'y', parameters: { binary_data: false, classification: 0 } }],
};
const raw: Json = {
  id: 'a',
  inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', parameters: { binary_data_size: 16 }, data: null }],
  outputs: [{ name: 'y', parameters: { binary_data: true } }],
};
const config = { name: 'relu', platform: 'onnxruntime_onnx', backend: 'onnxruntime', max_batch_size: 4 };

const bodies: [string, Asked][] = [
  ['infer', { path: '/v2/models/relu/infer', body: infer }],
  ['infer of a version', { path: '/v2/models/relu/versions/1/infer', body: infer }],
  ['infer with raw data', { path: '/v2/models/relu/infer', body: raw, tail: Buffer.alloc(16, 1) }],
  ['a plain call', { path: '/function/relu', body: { input: [data], inputs: null, note: 'n' } }],
  ['a plain call by names', { path: '/function/relu', body: { inputs: { x: [data] }, input: null } }],
  ['the index', { path: '/v2/repository/index', body: { ready: true } }],
  [
    'a load',
    {
      path: '/v2/repository/models/relu/load',
      body: { parameters: { config: JSON.stringify(config), other: 'x', 'file:1/model.onnx': null } },
    },
  ],
  ['an unload', { path: '/v2/repository/models/relu/unload', body: { parameters: { unload_dependents: false } } }],
  [
    'the log settings',
    {
      path: '/v2/logging',
      body: {
        log_info: false,
        log_warning: false,
        log_error: false,
        log_verbose_level: 0,
        log_file: '',
        log_format: 'default',
      },
    },
  ],
  ['the trace settings', { path: '/v2/trace/setting', body: { trace_level: ['OFF'], trace_rate: '1000' } }],
];

describe('a member that is null counts as left out', () => {
  test.each(bodies)('in the body of %s', async (_what, asked) => {
    const paths = memberPaths(asked.body);
    expect(paths.length).toBeGreaterThan(0);
    for (const path of paths) {
      const replies = [];
      for (const to of ['null', 'absent'] as const) {
        replies.push(await replyTo({ ...asked, body: changed(asked.body, path, to) }));
      }
      expect({ path, ...replies[0] }).toEqual({ path, ...replies[1] });
    }
    // The whole body is right, so that the comparisons above are about one member each.
    expect((await replyTo(asked)).status).toBe(200);
  });

  test("in the model configuration of a load, which is JSON within a parameter's text", async () => {
    const whole: Json = {
      ...config,
      dynamic_batching: { max_queue_delay_microseconds: 1000 },
      instance_group: [{ count: 1, kind: 'KIND_CPU' }],
    };
    const load = async (given: Json): Promise<unknown> => {
      const text = JSON.stringify(given);
      const loaded = await replyTo({
        path: '/v2/repository/models/relu/load',
        body: { parameters: { config: text } },
      });
      const shown = await fetch(`${host.url}/v2/models/relu/config`);
      return [loaded, await shown.json()];
    };
    for (const path of memberPaths(whole)) {
      expect([path, await load(changed(whole, path, 'null'))]).toEqual([
        path,
        await load(changed(whole, path, 'absent')),
      ]);
    }
    await replyTo({ path: '/v2/repository/models/relu/load', body: {} });
  });

  test('in the settings of a publication', async () => {
    const digest = createHash('sha256').update(model).digest('hex');
    const whole: Json = {
      model: `sha256:${digest}`,
      version: '3',
      traffic: 100,
      description: 'd',
      slo: '70ms',
      batching: { max: 2, delay: '1ms' },
      pinned: false,
      priority: 3,
      admission: 'shed',
      isolation: 'shared',
      cpu: { instances: 2, threads: 1 },
      timeouts: { handler: '1s', load: '20s', infer: '2s' },
    };
    await fetch(`${host.url}/blobs/sha256:${digest}`, { method: 'POST', body: model });
    const publish = async (name: string, body: Json): Promise<unknown> => {
      const { status, text } = await replyTo({ method: 'PUT', path: `/functions/${name}`, body });
      return [status, text.replaceAll(name, 'NAME').replaceAll(/"published_at":"[^"]*"/g, '')];
    };
    for (const [index, path] of memberPaths(whole).entries()) {
      expect([path, await publish(`n-${index}`, changed(whole, path, 'null'))]).toEqual([
        path,
        await publish(`a-${index}`, changed(whole, path, 'absent')),
      ]);
    }
  });

  test('in a change of traffic, but for the fields that null takes back', async () => {
    const path = '/functions/relu/traffic';
    const change = async (body: Json): Promise<unknown> =>
      JSON.parse((await replyTo({ method: 'PATCH', path, body })).text);
    const before = await change({ key: 'x-user-id', fallback: true });
    expect(before).toMatchObject({ key: 'x-user-id', fallback: true });
    expect(await change({ shares: null, headers: null, fallback: null })).toEqual(before);
    expect(await change({ key: null })).toMatchObject({ key: null });
  });
});

test("KServe's Python client sends null beside the raw data of an empty tensor", async () => {
  const empty = { name: 'x', shape: [0, 4], datatype: 'FP32', parameters: { binary_data_size: 0 }, data: null };
  const { status } = await replyTo({
    path: '/v2/models/relu/infer',
    body: { id: null, parameters: null, inputs: [empty], outputs: null },
    tail: Buffer.alloc(0),
  });
  expect(status).toBe(200);
});

test('an element that is null stays what it is: an error that names it', async () => {
  const body = { ...(infer as object), inputs: [{ ...tensor, data: [1, null, 3, 4] }] };
  const { status, text } = await replyTo({ path: '/v2/models/relu/infer', body });
  expect([status, text]).toEqual([400, expect.stringContaining('null')]);
  const none = await replyTo({ path: '/v2/models/relu/infer', body: { inputs: [null] } });
  expect([none.status, none.text]).toEqual([400, expect.stringContaining("an entry of 'inputs' is not an object")]);
});
