/**
 * The life of a function on a real host: its settings change, its versions divide the calls, and a bad one is removed.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createGrpcClient } from '../support/grpc-client.ts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { writeScaleModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

/** Fails on a first element of 13, which only a model that multiplies by 13 gives. */
const handler = `
export function preprocess(request) {
  return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [request.json(), 0, 0, 0] }];
}
export function postprocess([{ data }]) {
  if (data[0] === 13) throw new Error('unlucky');
  return { value: data[0] };
}
`;

let host: ReluHost;
beforeAll(async () => {
  host = await startReluHost(['relu'], {
    flags: { 'grpc.port': '0' },
    prepare: async (functions) => {
      const folder = join(functions, 'handled');
      await mkdir(folder, { recursive: true });
      await writeScaleModel(folder, 1);
      await writeFile(join(folder, 'handler.js'), handler);
      const settings = { model: 'scale-1.onnx', handler: 'handler.js', slo: '5s' };
      await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
    },
  });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

async function send(method: string, path: string, body?: unknown): Promise<{ status: number; json: Json }> {
  const reply = await fetch(host.url + path, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  });
  return { status: reply.status, json: (await reply.json()) as Json };
}
type Json = Record<string, unknown> & { readonly error?: string };

async function publish(name: string, factor: number, query = ''): Promise<{ status: number; json: Json }> {
  const body = await readFile(await writeScaleModel(host.folder, factor));
  const reply = await fetch(`${host.url}/functions/${name}${query}`, { method: 'PUT', body });
  return { status: reply.status, json: (await reply.json()) as Json };
}

/** The first element of the answer to 1: the factor of the version that answered. */
async function factorOf(name: string, headers: Record<string, string> = {}, version = ''): Promise<number> {
  const reply = await fetch(`${host.url}/function/${name}${version}`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ input: [[1, 0, 0, 0]] }),
  });
  const { output } = (await reply.json()) as { output: number[][] };
  return output[0]![0]!;
}

async function factors(name: string, calls: number, headers?: Record<string, string>): Promise<Map<number, number>> {
  const counts = new Map<number, number>();
  for (let call = 0; call < calls; call++) {
    const factor = await factorOf(name, headers);
    counts.set(factor, (counts.get(factor) ?? 0) + 1);
  }
  return counts;
}

const events = async (): Promise<string> => JSON.stringify((await send('GET', '/api/event-log')).json);

const callHandled = async (): Promise<number> =>
  (await fetch(`${host.url}/function/handled`, { method: 'POST', body: '1' })).status;

describe('settings', () => {
  test('change at once and in part, and go back to the published ones', async () => {
    const changed = await send('PATCH', '/functions/relu', { slo: '50ms', batching: { max: 4 } });
    expect(changed).toMatchObject({ status: 200, json: { slo_ms: 50, batching: { max: 4 }, priority: 100 } });
    expect((await send('PATCH', '/functions/relu?batching.delay=3ms')).json).toMatchObject({
      slo_ms: 50,
      batching: { max: 4, delay: '3ms' },
    });
    expect((await send('PATCH', '/functions/relu', { slo: null, 'batching.max': null })).json).toMatchObject({
      slo_ms: 5000,
      batching: { max: 1, delay: '3ms' },
    });
  });

  test.each([
    [{ sl: '50ms' }, "unknown setting 'sl': did you mean 'slo'?"],
    [{ slo: 'fast' }, 'setting \'slo\' is "fast", but must be a duration such as "250ms"'],
    [{ slo: '100' }, 'from 0.1 ms to 3600 s; it lacks a unit: 100ms or 100s?'],
    [{ 'batching.delay': '2.5' }, '; it lacks a unit: 2.5ms or 2.5s?'],
    [{ 'batching.min': null }, "unknown setting 'batching.min'"],
    [{ handler: 'x.ts' }, "setting 'handler' cannot change without a new version"],
    [{ example: '@file' }, "an upload cannot bring a file as its 'example'"],
    [{}, 'the change names no setting'],
  ])('%j is refused with what is wrong', async (change, sentence) => {
    const { status, json } = await send('PATCH', '/functions/relu', change);
    expect([status, json.error]).toEqual([400, expect.stringContaining(sentence)]);
  });

  test('are refused separately for unknown functions and unknown versions', async () => {
    expect(await send('PATCH', '/functions/nothing', { slo: '1s' })).toMatchObject({ status: 404 });
    expect(await send('PATCH', '/functions/relu/versions/9', { slo: '1s' })).toMatchObject({ status: 404 });
  });

  test('are kept by the next upload, unless it brings others', async () => {
    await publish('kept', 1, '?slo=1s');
    await send('PATCH', '/functions/kept', { slo: '70ms', priority: 7 });
    expect((await publish('kept', 2)).json).toMatchObject({ version: '2', slo_ms: 70, priority: 7 });
    expect((await publish('kept', 2)).status).toBe(200);
    expect((await publish('kept', 3, '?slo=90ms')).json).toMatchObject({ version: '3', slo_ms: 90, priority: 7 });
  });

  test('of one version leave the others as they are', async () => {
    await publish('each', 1, '?slo=1s');
    await publish('each', 2);
    await send('PATCH', '/functions/each/versions/1', { slo: '2s' });
    const slos = ((await send('GET', '/functions/each/versions')).json['versions'] as { slo_ms: number }[]).map(
      ({ slo_ms: slo }) => slo,
    );
    expect(slos).toEqual([2000, 1000]);
  });
});

describe('versions', () => {
  test('the one before comes back, and the newest again', async () => {
    await publish('back', 1);
    expect(await send('POST', '/functions/back/rollback')).toMatchObject({
      status: 409,
      json: { error: expect.stringContaining('no version that served before 1') as string },
    });
    await publish('back', 2);
    await publish('back', 3);
    expect(await factorOf('back')).toBe(3);
    const onTrial = async (): Promise<unknown> => (await send('GET', '/functions/back/traffic')).json['on_trial'];
    expect(await onTrial()).toBe('3');
    expect((await send('POST', '/functions/back/rollback')).json).toMatchObject({ shares: { 2: 100 } });
    expect(await factorOf('back')).toBe(2);
    // An operator moved away from version 3: no figure brings it back.
    expect(await onTrial()).toBeNull();
    await send('POST', '/functions/back/rollback');
    expect(await factorOf('back')).toBe(1);
    expect((await send('POST', '/functions/back/versions/3/promote')).json).toMatchObject({ shares: { 3: 100 } });
    expect(await factorOf('back')).toBe(3);
    expect(await factorOf('back', {}, '/versions/2')).toBe(2);
    expect((await publish('back', 4)).json).toMatchObject({ version: '4' });
    expect(await factorOf('back')).toBe(4);
    expect(await events()).toContain('Traffic: version 4 100% (before: version 3 100%)');
  });

  test('an upload can get no calls at first, or start with a few', async () => {
    await publish('canary', 1);
    expect((await publish('canary', 2, '?traffic=0')).status).toBe(201);
    expect(await factors('canary', 20)).toEqual(new Map([[1, 20]]));
    expect((await publish('canary', 3, '?traffic=25')).status).toBe(201);
    const counts = await factors('canary', 100);
    expect(new Set(counts.keys())).toEqual(new Set([1, 3]));
    expect(Math.abs(counts.get(3)! - 25)).toBeLessThanOrEqual(1);
    const refused = await publish('canary', 4, '?traffic=150');
    expect(refused).toMatchObject({ status: 400, json: { error: expect.stringContaining("'150'") as string } });
  });

  test.each([
    ['a few calls', { shares: { 2: 90, 3: 10 } }],
    ['most of the calls', { shares: { 2: 40, 3: 60 } }],
  ])(
    'a rollback while a new version gets %s gives all of them to the one that served before it',
    async (about, change) => {
      const name = about.replaceAll(' ', '-');
      await publish(name, 1);
      await publish(name, 2);
      await publish(name, 3, '?traffic=0');
      expect((await send('PATCH', `/functions/${name}/traffic`, change)).status).toBe(200);
      const ended = (await send('POST', `/functions/${name}/rollback`)).json;
      expect(ended).toMatchObject({ shares: { 2: 100 }, on_trial: null });
      expect((await send('POST', `/functions/${name}/rollback`)).json).toMatchObject({ shares: { 1: 100 } });
      expect((await send('POST', `/functions/${name}/rollback`)).status).toBe(409);
    },
  );

  test('calls are divided by key, over gRPC as well', async () => {
    await publish('divided', 1);
    await publish('divided', 2);
    const { json } = await send('PATCH', '/functions/divided/traffic', {
      shares: { 1: 50, 2: 50 },
      key: 'X-User',
    });
    expect(json).toMatchObject({ shares: { 1: 50, 2: 50 }, key: 'x-user' });
    const seen = new Set<number>();
    using client = createGrpcClient(`127.0.0.1:${host.grpcPort}`);
    for (let user = 0; user < 12; user++) {
      const counts = await factors('divided', 3, { 'x-user': `user ${user}` });
      expect(counts.size).toBe(1);
      const [factor] = counts.keys();
      seen.add(factor!);
      const answered = await client.infer('divided', [1, 0, 0, 0], { 'x-user': `user ${user}` });
      expect([answered.version, answered.output[0]]).toEqual([String(factor), factor]);
    }
    expect(seen).toEqual(new Set([1, 2]));
    expect(await send('PATCH', '/functions/divided/traffic', { shares: { 1: 50, 9: 50 } })).toMatchObject({
      status: 404,
      json: { error: "function 'divided' has no version '9'" },
    });
  });

  test('a removed one leaves its calls to the others, and gets none when it is published again', async () => {
    await publish('leaving', 1);
    await publish('leaving', 2, '?traffic=50');
    await fetch(`${host.url}/functions/leaving/versions/2`, { method: 'DELETE' });
    expect((await send('GET', '/functions/leaving/traffic')).json).toMatchObject({ shares: { 1: 100 } });
    await publish('leaving', 3, '?traffic=0&version=2');
    expect(await factors('leaving', 10)).toEqual(new Map([[1, 10]]));
  });

  test.each([
    ['POST', '/versions/1/promote', ['pct', 'percentage', 'traffic', 'version']],
    ['POST', '/rollback', ['to', 'version', 'percent']],
    ['DELETE', '', ['version', 'versions', 'dry_run']],
    ['DELETE', '/versions/2', ['version', 'force']],
    ['PATCH', '/traffic', ['percent', 'version', 'weights']],
    ['PATCH', '', ['versions', 'traffic']],
  ] as const)(
    '%s %s refuses names that it does not know, in query and body, and changes nothing',
    async (method, path, names) => {
      await publish('asked', 1);
      await publish('asked', 2);
      const before = (await send('GET', '/functions/asked/traffic')).json;
      const where = `/functions/asked${path}`;
      for (const name of names) {
        for (const reply of [await send(method, `${where}?${name}=2`), await send(method, where, { [name]: 2 })]) {
          expect([reply.status, reply.json.error]).toEqual([400, expect.stringContaining(`'${name}'`)]);
        }
      }
      expect((await send('GET', '/functions/asked/traffic')).json).toEqual(before);
    },
  );

  test('what a change names twice is refused, and a promotion takes its percentage in query or body', async () => {
    await publish('twice', 1);
    await publish('twice', 2);
    const promote = '/functions/twice/versions/1/promote';
    for (const [method, path, body] of [
      ['POST', `${promote}?percent=10&percent=20`, undefined],
      ['POST', `${promote}?percent=10`, { percent: 20 }],
      ['PATCH', '/functions/twice?slo=1s&slo=2s', undefined],
      ['PATCH', '/functions/twice/traffic?key=a', { key: 'b' }],
    ] as const) {
      const { status, json } = await send(method, path, body);
      expect([status, json.error]).toEqual([400, expect.stringContaining('is given twice')]);
    }
    expect((await send('POST', promote, { percent: 10 })).json).toMatchObject({ shares: { 1: 10, 2: 90 } });
    expect((await send('POST', `${promote}?percent=20`)).json).toMatchObject({ shares: { 1: 20, 2: 80 } });
  });

  test.each(['constructor', '__proto__', 'x-user'])(
    'calls without the header %s, their key, are divided by share',
    async (key) => {
      const name = `keyed-${key.replaceAll('_', '')}`;
      await publish(name, 1);
      await publish(name, 2, '?traffic=50');
      await send('PATCH', `/functions/${name}/traffic`, { key });
      expect(await factors(name, 20)).toEqual(new Map([[1, 10], [2, 10]])); // prettier-ignore
    },
  );

  test('one that fails on its own example gets no calls', async () => {
    expect((await send('PATCH', '/functions/handled', { example: '1' })).status).toBe(200);
    const { status, json } = await publish('handled', 13);
    expect([status, json.error]).toEqual([422, expect.stringContaining('its warm-up failed')]);
    expect(json.error).toContain('version 1 goes on serving');
    const reply = await fetch(`${host.url}/function/handled`, { method: 'POST', body: '1' });
    expect(await reply.json()).toEqual({ value: 1 });
    expect((await send('POST', '/functions/handled/versions/2/promote')).status).toBe(422);
    expect(await events()).toContain('Version 2 does not serve: its warm-up failed');
  });

  test('one whose calls fail is taken out automatically', async () => {
    expect((await send('PATCH', '/functions/handled', { example: '5' })).status).toBe(200);
    await send('POST', '/functions/handled/versions/2/promote');
    // Nothing is decided on fewer than 20 answers.
    for (let each = 0; each < 20; each++) expect(await callHandled()).toBe(500);
    // The record of the division is written meanwhile.
    await expect.poll(callHandled).toBe(200);
    const { json } = await send('GET', '/functions/handled/traffic');
    expect(json).toMatchObject({ shares: { 1: 100 }, on_trial: null, fell_back: { version: '2' } });
    expect(await events()).toContain('Version 2 was taken out of service, version 1 serves again');
  });
});
