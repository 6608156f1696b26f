/** The HTTP side over real connections, with fakes for the store and the pools. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { CpuError } from '../../src/cpu/index.ts';
import { catalogue } from '../../src/host/errors.ts';
import { tritonConfig } from '../../src/host/http/describe.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { echo, held } from './fake-pools.ts';
import { functionVersion, metadata, spec } from './fake-store.ts';
import { errorOf, inferBody, postTo, startTestHost, testConfig, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
  host.store.put(functionVersion('shout', { handlerPath: '/nowhere/handler.js' }));
  host.store.put(functionVersion('broken', { state: { status: 'unavailable', reason: 'the file is gone' } }));
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

function post(path: string, body: unknown, headers: Record<string, string> = {}, at = host): Promise<Response> {
  return postTo(at, path, body, headers);
}

describe('the memory of a call', () => {
  const values = 20_000;
  const header = (binary: boolean) => ({
    inputs: [
      {
        name: 'x',
        shape: [1, values],
        datatype: 'FP32',
        ...(binary ? { parameters: { binary_data_size: 4 * values } } : {}),
      },
    ],
    parameters: { binary_data_output: true },
  });
  /** The data of one call's inputs and of its answer, once the client has the answer. */
  const dataOf = async (isBinary: boolean): Promise<Uint8Array[]> => {
    const one = await startTestHost({ config: { limits: { bodyBytesMax: 1e6 } } });
    await using _host = one;
    const model = metadata([spec('x', 'FP32', [1, 'n'])], [spec('y', 'FP32', [1, 'n'])]);
    one.store.put(functionVersion('large', { metadata: model, rows: undefined }));
    const data: Uint8Array[] = [];
    one.pools.answer = ({ input }) => {
      if (input.kind !== 'tensors') throw new Error('it asks with tensors');
      const tensors = input.tensors.map((x) => ({ ...x, name: 'y', data: new Uint8Array(x.data) }));
      data.push(...input.tensors.map((x) => x.data), ...tensors.map((y) => y.data));
      return { output: { kind: 'tensors', tensors } };
    };
    const numbers = Float32Array.from({ length: values }, (_, at) => at / 8);
    const text = JSON.stringify(header(isBinary));
    const reply = isBinary
      ? await post(
          '/v2/models/large/infer',
          Buffer.concat([Buffer.from(text), Buffer.from(numbers.buffer)]),
          { 'Inference-Header-Content-Length': String(text.length) },
          one,
        )
      : await post(
          '/v2/models/large/infer',
          { ...header(false), inputs: [{ ...header(false).inputs[0], data: Array.from(numbers) }] },
          {},
          one,
        );
    const length = Number(reply.headers.get('inference-header-content-length'));
    const body = Buffer.from(await reply.arrayBuffer());
    expect(body.subarray(length).equals(Buffer.from(numbers.buffer))).toBe(true);
    return data;
  };

  test.each([true, false])('is freed with its answer, where its body is binary: %o', async (isBinary) => {
    const data = await dataOf(isBinary);
    await vi.waitFor(() => expect(data.map(({ byteLength }) => byteLength)).toEqual([0, 0]));
  });
});

describe('infer', () => {
  test('answers JSON with JSON', async () => {
    const reply = await post('/v2/models/pair/infer', { ...inferBody, id: '7' });
    expect(reply.status).toBe(200);
    expect(await reply.json()).toEqual({
      id: '7',
      model_name: 'pair',
      model_version: '1',
      outputs: [{ name: 'y', datatype: 'FP32', shape: [1, 2], data: [1, 2] }],
    });
  });

  test('answers binary with binary, and says how long its header is', async () => {
    const data = Buffer.from(Float32Array.from([3, 4]).buffer);
    const header = Buffer.from(
      JSON.stringify({
        inputs: [{ name: 'x', shape: [1, 2], datatype: 'FP32', parameters: { binary_data_size: 8 } }],
        parameters: { binary_data_output: true },
      }),
    );
    const reply = await post('/v2/models/pair/versions/1/infer', Buffer.concat([header, data]), {
      'Inference-Header-Content-Length': String(header.byteLength),
    });
    expect(reply.headers.get('content-type')).toBe('application/octet-stream');
    const length = Number(reply.headers.get('inference-header-content-length'));
    const body = Buffer.from(await reply.arrayBuffer());
    expect(JSON.parse(body.subarray(0, length).toString())).toMatchObject({
      outputs: [{ name: 'y', parameters: { binary_data_size: 8 } }],
    });
    expect(body.subarray(length).equals(data)).toBe(true);
  });

  test('says where it ran, whether it was cold, and where the time went', async () => {
    host.pools.answer = (invocation) => ({
      ...echo(invocation),
      coldStart: true,
      timings: { queueMs: 3, loadMs: 250, preprocessMs: 0, inferMs: 4.5, postprocessMs: 0 },
    });
    const reply = await post('/v2/models/pair/infer', inferBody, { 'X-Request-ID': 'r-1', 'X-Call-Id': 'c-1' });
    host.pools.answer = echo;
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'x-request-id': 'r-1',
      'x-call-id': 'c-1',
      'x-model-id': 'pair@1',
      'x-model-cold-start': 'true',
      'x-model-load-time': '0.25',
      'x-queue-time': '3',
      'x-inference-time': '4.5',
      'x-compute-type': 'cpu',
      'x-turntable-placement': 'cpu pool cold',
    });
    expect(Number(reply.headers.get('x-total-time'))).toBeGreaterThan(0);
    expect(Number(reply.headers.get('x-duration-seconds')) * 1000).toBeCloseTo(
      Number(reply.headers.get('x-total-time')),
      1,
    );
  });

  test('makes ids if the client sent none, and passes a trace on', async () => {
    const trace = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    const reply = await post('/v2/models/pair/infer', inferBody, { traceparent: trace });
    expect(reply.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
    expect(reply.headers.get('x-call-id')).toBe(reply.headers.get('x-request-id'));
    expect(reply.headers.get('traceparent')).toBe(trace);
  });

  test.each([
    ['the version ff', `ff-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, false],
    ['a trace of zeros', `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`, false],
    ['a parent of zeros', `00-${'a'.repeat(32)}-${'0'.repeat(16)}-01`, false],
    ['version 00 and a field more', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01-what`, false],
    ['a later version and a field more', `cc-${'a'.repeat(32)}-${'b'.repeat(16)}-01-what`, true],
  ])('a trace with %s: %s is passed on: %s', async (_name, trace, isPassedOn) => {
    const reply = await post('/v2/models/pair/infer', inferBody, { traceparent: trace });
    expect(reply.status).toBe(200);
    expect(reply.headers.get('traceparent')).toBe(isPassedOn ? trace : null);
    expect(reply.headers.has('server-timing')).toBe(isPassedOn);
  });

  test('passes deadline and priority to the pool', async () => {
    const before = performance.now();
    await post('/v2/models/pair/infer', { ...inferBody, parameters: { timeout: 5_000_000, priority: 2 } });
    const { options } = host.pools.invocations.at(-1)!;
    expect(options.priority).toBe(2);
    expect(options.deadlineMs).toBeGreaterThan(before + 4000);
    expect(options.deadlineMs).toBeLessThan(performance.now() + 5000);
    await post('/v2/models/pair/infer', inferBody);
    expect(host.pools.invocations.at(-1)!.options).toMatchObject({ priority: 100 });
    expect(host.pools.invocations.at(-1)!.options.deadlineMs).toBeUndefined();
  });

  test('takes gzip and deflate, and refuses a bomb and unknown encodings', async () => {
    const packed = await post('/v2/models/pair/infer', gzipSync(JSON.stringify(inferBody)), {
      'Content-Encoding': 'GZip', // Content codings are case-insensitive (RFC 9110, 8.4.1).
    });
    expect(packed.status).toBe(200);
    await packed.arrayBuffer();
    const bomb = await post('/v2/models/pair/infer', gzipSync(Buffer.alloc(5_000_000)), { 'Content-Encoding': 'gzip' });
    expect(await errorOf(bomb)).toMatchObject({ status: 413, code: 'body-too-large' });
    const broken = await post('/v2/models/pair/infer', 'not gzip', { 'Content-Encoding': 'gzip' });
    expect(await errorOf(broken)).toMatchObject({ status: 400, code: 'bad-request' });
    for (const encoding of ['zstd', 'br']) {
      const unknown = await post('/v2/models/pair/infer', 'x', { 'Content-Encoding': encoding });
      expect(await errorOf(unknown)).toMatchObject({ status: 415, code: 'unsupported-media-type' });
    }
  });

  test('refuses bad input before anything runs', async () => {
    const ran = host.pools.invocations.length;
    const bad = { inputs: [{ ...inferBody.inputs[0], shape: [2, 2] }] };
    expect(await errorOf(await post('/v2/models/pair/infer', bad))).toMatchObject({ status: 400, code: 'bad-tensor' });
    expect(await errorOf(await post('/v2/models/pair/infer', '{"inputs":[NaN]}'))).toMatchObject({ code: 'bad-json' });
    const slo = await post('/v2/models/pair/infer', inferBody, { 'X-Turntable-SLO': 'soon' });
    expect(await errorOf(slo)).toMatchObject({ status: 400, error: expect.stringContaining('X-Turntable-SLO') });
    expect(host.pools.invocations.length).toBe(ran);
  });

  test('distinguishes unknown functions and versions, and says why one cannot serve', async () => {
    expect(await errorOf(await post('/v2/models/none/infer', inferBody))).toMatchObject({
      status: 404,
      code: 'unknown-function',
    });
    expect(await errorOf(await post('/v2/models/pair/versions/9/infer', inferBody))).toMatchObject({
      status: 404,
      code: 'unknown-version',
    });
    const broken = await post('/v2/models/broken/infer', inferBody);
    expect(broken.headers.get('retry-after')).toBe('1');
    expect(await errorOf(broken)).toMatchObject({ status: 503, error: expect.stringContaining('the file is gone') });
  });
});

test('every failure of a pool has the status of the catalogue', async () => {
  const codes = [
    'queue-full',
    'deadline-passed',
    'instance-died',
    'inference-input',
    'inference-failed',
    'handler-timeout',
    'model-load-failed',
  ] as const;
  for (const code of codes) {
    host.pools.answer = () => Promise.reject(new CpuError(code, `it was ${code}`));
    const reply = await post('/v2/models/pair/infer', inferBody);
    expect(await errorOf(reply)).toEqual({ status: catalogue[code].status, code, error: `it was ${code}` });
  }
  host.pools.answer = () => Promise.reject(new CpuError('handler-input', 'no letters', 422));
  expect(await errorOf(await post('/function/shout', 'x'))).toMatchObject({ status: 422, code: 'handler-input' });
  host.pools.answer = () => {
    throw new Error('a secret of the host');
  };
  expect(await errorOf(await post('/function/pair', '{"input":[[1,2]]}'))).toMatchObject({
    status: 500,
    code: 'internal',
    error: expect.not.stringContaining('secret'),
  });
  host.pools.answer = echo;
});

test('a call of a version that is removed before its model is loaded gets the reason', async () => {
  host.store.put(functionVersion('leaving'));
  host.pools.answer = async () => {
    await host.store.remove('leaving', '1');
    throw new CpuError('model-load-failed', 'no such file: /nowhere/model.onnx');
  };
  expect(await errorOf(await post('/v2/models/leaving/infer', inferBody))).toEqual({
    status: 404,
    code: 'unknown-version',
    error: "version 1 of function 'leaving' was removed",
  });
  host.pools.answer = echo;
});

/** A pool's answer to a request, as from a handler. */
function handled(status: number, headers: Record<string, string>): TestHost['pools']['answer'] {
  return () => ({ output: { kind: 'response', response: { status, headers, body: Buffer.from('{}') } } });
}

describe('function calls', () => {
  test('without a handler take plain JSON, whatever its content type', async () => {
    const reply = await post(
      '/function/pair',
      { input: [[1, 2]] },
      { 'Content-Type': 'application/x-www-form-urlencoded' },
    );
    expect(await reply.text()).toBe('{"output":[[1,2]]}\n');
    expect(reply.headers.get('x-turntable-placement')).toBe('cpu pool warm');
    const versioned = await post('/function/pair/versions/1', { input: [[1, 2]] });
    expect(versioned.status).toBe(200);
  });

  test('with a handler pass it the whole request', async () => {
    const reply = await post('/function/shout?loud=1', 'hey', { 'X-Colour': 'blue' });
    expect(await reply.text()).toBe('POST /function/shout?loud=1 hey');
    const { input } = host.pools.invocations.at(-1)!;
    expect(input).toMatchObject({ kind: 'request', request: { headers: { 'x-colour': 'blue' } } });
  });

  test("keep a handler's status and headers, but not those of the connection", async () => {
    host.pools.answer = handled(418, {
      'x-tea': 'yes',
      'Content-Length': '9',
      connection: 'close',
      'x-call-id': 'mine',
    });
    const reply = await post('/function/shout', '', { 'X-Call-Id': 'yours' });
    expect(reply.status).toBe(418);
    expect([reply.headers.get('x-tea'), reply.headers.get('content-length')]).toEqual(['yes', '2']);
    expect([reply.headers.get('connection'), reply.headers.get('x-call-id')]).toEqual(['keep-alive', 'yours']);
    await reply.arrayBuffer();
    host.pools.answer = handled(200, { 'x-bad': 'a\r\nb' });
    expect(await errorOf(await post('/function/shout', ''))).toMatchObject({ status: 500, code: 'handler-failed' });
    host.pools.answer = handled(100, {});
    expect(await errorOf(await post('/function/shout', ''))).toMatchObject({ status: 500, code: 'handler-failed' });
    host.pools.answer = echo;
  });

  test('later need a queue, which is reported only for functions that exist', async () => {
    expect(await errorOf(await post('/async-function/none', ''))).toMatchObject({ status: 404 });
    expect(await errorOf(await post('/async-function/pair', ''))).toMatchObject({
      status: 503,
      code: 'no-queue',
      error: expect.stringContaining('Redis'),
    });
    for (const method of ['GET', 'DELETE']) {
      expect((await fetch(`${host.url}/async-function/some-id`, { method })).status).toBe(503);
    }
  });
});

const anyError: object = { error: expect.any(String) };

describe('every path', () => {
  const paths: [method: string, path: string, status: number, body?: object][] = [
    ['GET', '/v2', 200, { name: 'turntable' }],
    ['GET', '/v2/', 200],
    ['GET', '/v2/health/live', 200, { live: true }],
    ['GET', '/v2/health/ready', 200, { ready: true }],
    ['GET', '/v2/models', 200, { models: expect.arrayContaining(['pair']) }],
    ['GET', '/v2/models/pair', 200, { name: 'pair', versions: ['1'], platform: 'onnxruntime_onnx', inputs: [{ name: 'x', datatype: 'FP32', shape: [-1, 2] }] }],
    ['GET', '/v2/models/pair/versions/1', 200],
    ['GET', '/v2/models/pair/versions/2', 404],
    ['GET', '/v2/models/pair/ready', 200, { ready: true }],
    ['GET', '/v2/models/broken/ready', 503],
    ['GET', '/v2/models/pair/config', 200, { max_batch_size: 25_000, input: [{ data_type: 'TYPE_FP32', dims: [2] }], dynamic_batching: { max_queue_delay_microseconds: 2000 } }],
    ['GET', '/v2/models/pair/versions/1/config', 200],
    ['GET', '/v2/models/pair/stats', 200, { model_stats: [{ name: 'pair', version: '1' }] }],
    ['GET', '/v2/models/pair/versions/1/stats', 200],
    ['GET', '/v2/models/stats', 200],
    ['GET', '/v2/models/none', 404],
    ['POST', '/v2/repository/index', 200],
    ['POST', '/v2/repository/models/pair/load', 200, { state: 'READY' }],
    ['POST', '/v2/repository/models/none/load', 404],
    ['POST', '/v2/repository/models/pair/unload', 200, { name: 'pair' }],
    ['GET', '/v2/models/pair/ready', 503],
    ['POST', '/v2/repository/models/pair/load', 200, { name: 'pair', state: 'READY' }],
    ['GET', '/functions', 200],
    ['GET', '/functions/pair', 200, { name: 'pair', state: 'ready', slo: '100ms', slo_ms: 100, versions: ['1'], inputs: [{ shape: ['batch', 2] }] }],
    ['GET', '/functions/pair/versions/1', 200],
    ['GET', '/functions/broken', 200, { state: 'unavailable', reason: 'the file is gone' }],
    ['GET', '/functions/none', 404],
    ['GET', '/metrics', 200],
    ['GET', '/', 200],
    ['GET', '/function/pair', 405],
    ['PATCH', '/functions', 405],
    ['GET', '/v2/models/pair/infer', 405],
    ['GET', '/blobs/sha256:00', 400],
    ['GET', '/nowhere', 404],
    ['PURGE', '/v2', 405],
    ['GET', '/v2/models/p%61ir', 200],
    ['GET', '/v2/models/p%2561ir', 404],
    ['GET', '/v2/models/pair%2Fready', 404],
    ['GET', '/v2/models/%zz', 404],
    ['GET', `/v2/models/${'a'.repeat(5000)}`, 404],
    ['GET', '/v2/models/__proto__', 404],
  ]; // prettier-ignore
  test.each(paths)('%s %s is %i', async (method, path, status, body) => {
    const reply = await fetch(host.url + path, { method, headers: { 'Accept-Encoding': 'identity' } });
    expect(reply.status).toBe(status);
    const text = await reply.text();
    expect(reply.headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
    const parsed = path === '/' || path === '/metrics' ? {} : (JSON.parse(text) as unknown);
    const leastError = status >= 400 ? anyError : {};
    expect(parsed).toMatchObject(body ?? leastError);
  });

  test.each(paths.filter(([method, , status]) => method === 'GET' && status === 200))(
    'HEAD where %s %s works has the same status and no body',
    async (_method, path) => {
      const reply = await fetch(host.url + path, { method: 'HEAD' });
      expect([reply.status, await reply.text()]).toEqual([200, '']);
      expect(Number(reply.headers.get('content-length'))).toBeGreaterThan(0);
    },
  );

  test('a method that a path does not take is refused with those that it does', async () => {
    const reply = await fetch(`${host.url}/functions/pair`, { method: 'POST' });
    expect(reply.headers.get('allow')).toBe('OPTIONS, HEAD, GET, PUT, PATCH, DELETE');
    expect((await fetch(`${host.url}/blobs/sha256:00`, { method: 'PUT' })).headers.get('allow')).toBe(
      'OPTIONS, HEAD, GET, POST',
    );
  });
});

test('the configuration itself says how many instances a function may have', () => {
  const config = tritonConfig(functionVersion('pair'), {
    ...testConfig,
    cpu: { ...testConfig.cpu, cores: 8, threads: 2 },
  });
  expect(config).toMatchObject({ instance_group: [{ kind: 'KIND_CPU', count: 4 }] });
});

test('the index lists only ready versions on request', async () => {
  const all = (await (await post('/v2/repository/index', '')).json()) as {
    name: string;
    state: string;
    reason: string;
  }[];
  expect(all.find(({ name }) => name === 'broken')).toMatchObject({ state: 'UNAVAILABLE', reason: 'the file is gone' });
  const ready = (await (await post('/v2/repository/index', { ready: true })).json()) as { name: string }[];
  expect(ready.map(({ name }) => name)).toEqual(['pair', 'shout']);
  expect((await post('/v2/repository/index', { ready: 1 })).status).toBe(400);
});

test('a load may bring a configuration; a field that should be a number is refused by name', async () => {
  expect((await post('/v2/repository/models/pair/load', { parameters: { config: '{}' } })).status).toBe(200);
  const reply = await post('/v2/repository/models/pair/load', { parameters: { config: '{"max_batch_size":"x"}' } });
  expect(await errorOf(reply)).toMatchObject({ status: 400, error: expect.stringContaining('max_batch_size') });
});

test('the first page lists the functions with a call each as text, and is the dashboard in a browser', async () => {
  const text = await (await fetch(host.url)).text();
  expect(text).toContain(`curl -s --data '{"input":[[0,0]]}' ${host.url}/function/pair`);
  const html = await (await fetch(host.url, { headers: { accept: 'text/html' } })).text();
  expect(html).toContain('<title>Turntable</title>');
});

test('the call on the first page works', async () => {
  const text = await (await fetch(host.url)).text();
  const [, json] = /--data '(.*)' .*\/function\/pair/.exec(text) ?? [];
  expect((await post('/function/pair', json)).status).toBe(200);
});

describe('limits', () => {
  test('requests over the number in progress are refused, health checks are not', async () => {
    await using small = await startTestHost({ config: { limits: { requestsInFlightMax: 1 } } });
    const hold = held();
    small.pools.answer = hold.answer;
    const first = post('/v2/models/pair/infer', inferBody, {}, small);
    await hold.started;
    const second = await post('/v2/models/pair/infer', inferBody, {}, small);
    expect(second.headers.get('retry-after')).toBe('1');
    expect(await errorOf(second)).toMatchObject({ status: 429, code: 'too-many-requests' });
    expect((await fetch(`${small.url}/v2/health/ready`)).status).toBe(200);
    hold.release();
    expect((await first).status).toBe(200);
    expect((await post('/v2/models/pair/infer', inferBody, {}, small)).status).toBe(200);
  });

  test('bodies that do not come take no place from a request whose body is there', async () => {
    await using small = await startTestHost({ config: { limits: { requestsInFlightMax: 2 } } });
    const { hostname, port } = new URL(small.url);
    const sockets = Array.from({ length: 5 }, () => connect(Number(port), hostname));
    try {
      for (const socket of sockets) {
        socket.write(`POST /v2/models/pair/infer HTTP/1.1\r\nHost: ${hostname}\r\nContent-Length: 100\r\n\r\n{`);
      }
      // Their headers are there when those of a later connection are.
      await Promise.all(sockets.map((socket) => once(socket, 'connect')));
      expect((await fetch(`${small.url}/v2/health/ready`)).status).toBe(200);
      expect((await post('/v2/models/pair/infer', inferBody, {}, small)).status).toBe(200);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  });

  test('a draining host is alive but not ready, and closes its connections', async () => {
    await using ending = await startTestHost();
    ending.lifecycle.phase = 'draining';
    const refusal = await post('/v2/models/pair/infer', inferBody, {}, ending);
    expect(refusal.headers.get('connection')).toBe('close');
    expect(await errorOf(refusal)).toMatchObject({ status: 503, code: 'draining' });
    expect((await fetch(`${ending.url}/v2/health/ready`)).status).toBe(503);
    expect((await fetch(`${ending.url}/v2/health/live`)).status).toBe(200);
    expect((await fetch(`${ending.url}/metrics`)).status).toBe(200);
  });

  test('closing waits for requests in progress, and says whether it had to cut one off', async () => {
    const patient = await startTestHost();
    const hold = held();
    patient.pools.answer = hold.answer;
    const reply = post('/v2/models/pair/infer', inferBody, {}, patient);
    await hold.started;
    patient.lifecycle.phase = 'draining';
    const closed = patient.server.close(5000);
    hold.release();
    expect((await reply).status).toBe(200);
    expect(await closed).toBe(true);

    const hasty = await startTestHost();
    const stuck = held();
    hasty.pools.answer = stuck.answer;
    const cut = post('/v2/models/pair/infer', inferBody, {}, hasty).catch(() => 'cut off');
    await stuck.started;
    expect(await hasty.server.close(10)).toBe(false);
    expect(await cut).toBe('cut off');
  });

  test('before the functions are read, an unknown one may still appear', async () => {
    await using early = await startTestHost();
    early.lifecycle.phase = 'starting';
    early.store.put(functionVersion('later', { state: { status: 'validating' } }));
    for (const path of ['/v2/health/ready', '/healthz', '/v2/models/later/ready']) {
      const reply = await fetch(`${early.url}${path}`);
      expect([path, reply.status, reply.headers.get('x-turntable-error')]).toEqual([path, 503, 'not-ready']);
    }
    // A probe was answered, which is neither an error of the host nor of a client.
    expect(await (await fetch(`${early.url}/api/errors?range=1m`)).json()).toMatchObject({ causes: [] });
    expect(early.log.filter(({ level }) => Number(level) > 20)).toEqual([]);
    await early.store.remove('later', '1');
    expect(await errorOf(await post('/function/later', '', {}, early))).toMatchObject({
      status: 503,
      code: 'not-ready',
    });
  });
});

test('a call waits for a validation in progress, but not without limit', async () => {
  await using waiting = await startTestHost({ readyWaitMs: 60 });
  const fresh = functionVersion('fresh', { state: { status: 'validating' }, metadata: undefined });
  waiting.store.put(fresh);
  const late = await post('/v2/models/fresh/infer', inferBody, {}, waiting);
  expect(await errorOf(late)).toMatchObject({ status: 503, error: expect.stringContaining('still being validated') });
  // It misses its objective, though nothing ran.
  const metrics = await (await fetch(`${waiting.url}/metrics`)).text();
  expect(metrics).toContain('turntable_goodput_total{function="fresh",outcome="failed"} 1');
  await using patient = await startTestHost({ readyWaitMs: 20_000 });
  patient.store.put(fresh);
  const reply = post('/v2/models/fresh/infer', inferBody, {}, patient);
  setImmediate(() => patient.store.put(functionVersion('fresh')));
  expect((await reply).status).toBe(200);
});

test('a call of a version still in validation runs at a host of the fleet that has it, if one accepts it', async () => {
  const there = { host: 'other:1', reason: 'elsewhere', coldStart: false, isGpu: false, placed: 'cpu pool warm' };
  let takes = true;
  await using inFleet: TestHost = await startTestHost({
    readyWaitMs: 60,
    routing: {
      canPass: () => true,
      run: async ({ key }, input) => {
        if (!takes) return undefined;
        return { result: await inFleet.pools.invoke(key, input), placement: { kind: 'fleet-host', ...there } };
      },
    },
  });
  inFleet.store.put(functionVersion('checked', { state: { status: 'validating' } }));
  const reply = await post('/v2/models/checked/infer', inferBody, {}, inFleet);
  expect([reply.status, reply.headers.get('x-turntable-placement')]).toEqual([
    200,
    'host other:1 (elsewhere): cpu pool warm',
  ]);
  takes = false;
  const refused = await post('/v2/models/checked/infer', inferBody, {}, inFleet);
  expect(await errorOf(refused)).toMatchObject({
    status: 503,
    error: expect.stringContaining('still being validated'),
  });
});

test('a client that leaves aborts its invocation, and is counted as gone', async () => {
  const hold = held();
  host.pools.answer = hold.answer;
  const leaving = new AbortController();
  const reply = fetch(`${host.url}/v2/models/pair/infer`, {
    method: 'POST',
    body: JSON.stringify(inferBody),
    signal: leaving.signal,
  }).catch(() => 'left');
  await hold.started;
  leaving.abort();
  expect(await reply).toBe('left');
  expect(await hold.ended).toBe('aborted');
  host.pools.answer = echo;
  await post('/v2/models/pair/infer', inferBody);
  expect(host.log.some((line) => line['code'] === 'client-gone' && line['status'] === 499)).toBe(true);
  expect(host.statistics.of(functionVersion('pair')).failures.CANCELED).toBeGreaterThan(0);
});

test('a failed request is logged once, with its ids and without its body, query or keys', async () => {
  await using quiet = await startTestHost({ logLevel: 'info' });
  await post(
    '/function/pair?secret=1',
    '{"input":"a secret"}',
    { 'X-Request-ID': 'r-9', authorization: 'Bearer secret' },
    quiet,
  );
  await post('/function/pair', { input: [[1, 2]] }, {}, quiet);
  expect(quiet.log).toHaveLength(1);
  expect(quiet.log[0]).toMatchObject({
    level: 40,
    requestId: 'r-9',
    status: 400,
    path: '/function/pair',
    function: 'pair',
  });
  expect(JSON.stringify(quiet.log).replace('bad-tensor', '')).not.toContain('secret=1');
  expect(JSON.stringify(quiet.log)).not.toContain('Bearer');
});

test('FP16 outputs come as binary from infer and as numbers from a plain call', async () => {
  const half = metadata([spec('x', 'FP16', ['batch'])], [spec('h', 'FP16', ['batch'])]);
  host.store.put(functionVersion('half', { metadata: half }));
  host.pools.answer = ({ input }) => ({
    output: {
      kind: 'tensors',
      tensors: input.kind === 'tensors' ? input.tensors.map((tensor) => ({ ...tensor, name: 'h' })) : [],
    },
  });
  const plain = await post('/function/half', { input: [1.5, -2] });
  expect(await plain.json()).toEqual({ output: [1.5, -2] });
  const { data } = tensorOf('x', 'FP16', [1], Uint16Array.from([0x3c00]));
  const reply = await post('/v2/models/half/infer', data, { 'Inference-Header-Content-Length': '0' });
  expect(reply.headers.get('inference-header-content-length')).not.toBeNull();
  host.pools.answer = echo;
});
