/** A whole host and a whole worker over the test's own Redis: overflow, files by hash, asynchronous calls. */
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Queue } from 'bullmq';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { apiKeyEntry, newApiKey } from '../../src/host/access/api-keys.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { PoolTaker, type RemoteWorker } from '../../src/queue/index.ts';
import { RedisLink, startRemoteWorker } from '../../src/queue/redis.ts';
import { writeReluModel } from '../support/models.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { startReluHost } from '../support/relu-host.ts';
import { silentLog } from '../support/silent-log.ts';
import { FolderStore } from '../../src/store/index.ts';
import { waitLimitMs } from '../time-limits.ts';

/** Slow, so that others wait; says which process it ran in. */
const slowHandler = `
  export const preprocess = async (request) => {
    await new Promise((resolve) => setTimeout(resolve, 25));
    return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: JSON.parse(request.text()) }];
  };
  export const postprocess = (tensors) =>
    new Response(JSON.stringify(Array.from(tensors[0].data)), { status: 201, headers: { 'x-from': 'handler' } });`;

const logger = createLogger({ level: 'silent', format: 'json' });

const input = (value: number): RequestInit => ({ method: 'POST', body: `{"input": [[${value}, 0, 0, 0]]}` });

describe.skipIf(redisMissing !== undefined)('a host with Redis', () => {
  let folder: string;
  let redis: RedisServer;
  let host: RunningHost;
  let link: RedisLink;
  let taker: PoolTaker;
  let worker: RemoteWorker;

  const call = (path: string, init: RequestInit = {}): Promise<Response> => fetch(host.url + path, init);
  const post = (path: string, body: string, headers: Record<string, string> = {}): Promise<Response> =>
    call(path, { method: 'POST', body, headers });

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-queue-'));
    for (const [name, settings] of [
      ['slow', { handler: 'handler.mjs' }],
      ['relu', { batching: { max: 8 } }],
    ] as const) {
      const place = join(folder, 'functions', name);
      await mkdir(place, { recursive: true });
      await writeReluModel(place);
      await writeFile(join(place, 'handler.mjs'), slowHandler);
      await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'relu.onnx', ...settings }));
    }
    redis = await RedisServer.start();
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '1',
        'redis.url': redis.url,
        'async.callbackBackoff': '20ms',
        'async.callbackAttempts': '3',
        'async.callbackAllow': '127.0.0.1',
      },
    });
    host = await startHost(config, { logger });
    link = new RedisLink({ url: redis.url, prefix: config.redis.prefix });
    await link.ready(waitLimitMs);
    taker = new PoolTaker({
      name: 'lab-7',
      cores: 1,
      pools: { blankInstances: 1, memoryBytes: 1e9, log: () => undefined },
      store: new FolderStore(join(folder, 'data')),
      models: join(folder, 'worker'),
      modelBytesMax: 1e6,
      threads: 1,
      queueMax: 100,
      idleMs: 3_600_000,
      log: silentLog,
    });
    await taker.start();
    worker = await startRemoteWorker({ link, taker, log: silentLog });
    for (;;) {
      const { workers } = (await (await call('/v2/workers')).json()) as {
        workers: { functions: { held: boolean }[] }[];
      };
      if (workers[0]?.functions.filter(({ held }) => held).length === 2) break;
      await delay(20); // Workers emit no event here for their reports.
    }
  });

  afterAll(async () => {
    await worker?.stop(1000);
    await taker?.stop();
    link?.close();
    await host?.stop();
    await redis?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('sends calls that it cannot answer soon to the worker, and says so; each gets its own answer', async () => {
    await post('/function/slow', '[1,2,3,4]');
    const placements: string[] = [];
    const localPattern = /^cpu pool (warm|cold)$/;
    const remotePattern =
      /^remote worker lab-7( cold)? overflow: cpu pool would finish in [\d.]+ ms, here (in [\d.]+ ms|nothing has run yet)/;
    const matching = (pattern: RegExp): number => placements.filter((placement) => pattern.test(placement)).length;
    const fewer = (): number => Math.min(matching(localPattern), matching(remotePattern));
    // On a busy machine the worker's first start looks expensive for a while, and the pool is rightly preferred.
    for (let bursts = 0; bursts === 0 || fewer() <= 2; bursts++) {
      const burst = Array.from({ length: 24 }, async (_, index) => {
        const reply = await post('/function/slow', `[${index},-1,0,1]`);
        expect(reply.status).toBe(201);
        expect(await reply.json()).toEqual([index, 0, 0, 1]);
        return reply.headers.get('x-turntable-placement') ?? '';
      });
      placements.push(...(await Promise.all(burst)));
    }
    const others = placements.filter((placement) => !localPattern.test(placement) && !remotePattern.test(placement));
    expect(others).toEqual([]);
    expect(fewer()).toBeGreaterThan(2);
    const metrics = await (await call('/metrics')).text();
    const counted = [
      ...metrics.matchAll(/^turntable_overflow_total\{function="slow",from="cpu",to="worker",.*\} (\d+)$/gm),
    ];
    expect(counted.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(matching(remotePattern));
    expect(metrics).toContain('turntable_worker_cores{worker="lab-7"} 1');
    expect(metrics).toContain('turntable_dependency_up{dependency="redis"} 1');
  });

  test('runs a request of several rows in parts, and says where each ran', async () => {
    const rows = Array.from({ length: 8 }, (_, row) => [row, -row, 1, -1]);
    let placement = '';
    // After three warm requests of one length, halves of one show the time of fewer rows.
    while (!placement.includes('parts')) {
      const reply = await post('/function/relu', JSON.stringify({ input: rows }));
      expect(await reply.json()).toEqual({ output: rows.map((row) => row.map((value) => Math.max(0, value))) });
      placement = reply.headers.get('x-turntable-placement') ?? '';
    }
    expect(placement).toMatch(
      /^2 parts: 4 rows on (cpu pool|remote worker lab-7).*, 4 rows on (cpu pool|remote worker)/,
    );
    expect(await (await call('/metrics')).text()).toMatch(/^turntable_split_requests_total [1-9]/m);
  });

  test('shows its workers, and that Redis is up', async () => {
    expect(await (await call('/v2/health/ready')).json()).toEqual({ ready: true, redis: 'up' });
    // What is found out of a function's rows changes its manifest, for which the worker fetches it once more.
    await expect
      .poll(async () => (await call('/v2/workers')).json())
      .toMatchObject({
        redis: { status: 'up' },
        workers: [{ name: 'lab-7', cores: 1, draining: false, functions: [{ held: true }, { held: true }] }],
      });
  });

  test('serves the files of its functions by hash, whole, and nothing else', async () => {
    const { sha256 } = (await (await call('/functions/relu')).json()) as { sha256: string };
    const blob = await call(`/blobs/sha256:${sha256}`);
    const bytes = Buffer.from(await blob.arrayBuffer());
    expect(blob.headers.get('content-length')).toBe(String(bytes.byteLength));
    const { createHash } = await import('node:crypto');
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(sha256);
    const part = await call(`/blobs/sha256:${sha256}`, { headers: { range: 'bytes=10-19' } });
    expect([part.status, part.headers.get('content-range')]).toEqual([206, `bytes 10-19/${bytes.byteLength}`]);
    expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(10, 20))).toBe(true);
    expect((await call(`/blobs/sha256:${'0'.repeat(64)}`)).status).toBe(404);
    expect((await call(`/blobs/sha256:${sha256}`, { headers: { origin: 'http://evil.example' } })).status).toBe(403);
  });

  async function finished(id: string): Promise<Response> {
    for (;;) {
      const reply = await call(`/async-function/${id}`);
      if (reply.status !== 202) return reply;
      expect(reply.headers.get('retry-after')).toBe('1');
      await reply.text();
      await delay(10); // A client can only poll.
    }
  }

  test('keeps the reply of a call as a waiting client would have got it', async () => {
    const accepted = await post('/async-function/slow', '[5,-5,0,1]');
    expect(accepted.status).toBe(202);
    const id = accepted.headers.get('x-call-id') ?? '';
    expect(accepted.headers.get('location')).toBe(`/async-function/${id}`);
    const reply = await finished(id);
    expect(reply.status).toBe(201);
    expect(await reply.json()).toEqual([5, 0, 0, 1]);
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'x-from': 'handler',
      'x-call-id': id,
      'x-call-status': 'finished',
      'x-function-status': '201',
      'x-model-id': 'slow@1',
      'x-compute-type': 'cpu',
    });
    expect(await (await call(`/async-function/${id}/status`)).json()).toMatchObject({
      id,
      status: 'finished',
      function: 'slow',
      function_status: 201,
    });
    expect((await call(`/async-function/${id}`, { method: 'DELETE' })).status).toBe(409);
  });

  test("a call's failure is a reply too, with status and code", async () => {
    const { id } = (await (await post('/async-function/relu', '{"input": [[1]]}')).json()) as { id: string };
    const reply = await finished(id);
    expect(reply.status).toBe(400);
    expect(reply.headers.get('x-turntable-error')).toBe('bad-tensor');
    expect(await reply.json()).toMatchObject({ error: expect.stringContaining('x') as string });
  });

  test('a call that is sent twice under one id runs once; another call under it is refused', async () => {
    const headers = { 'x-call-id': 'order.17' };
    const body = '{"input": [[1, 2, 3, 4]]}';
    expect((await post('/async-function/relu', body, headers)).status).toBe(202);
    expect((await post('/async-function/relu', body, headers)).status).toBe(202);
    const other = await post('/async-function/relu', '{"input": [[9, 9, 9, 9]]}', headers);
    expect([other.status, other.headers.get('x-turntable-error')]).toEqual([409, 'call-id-in-use']);
    expect(await (await finished('order.17')).json()).toEqual({ output: [[1, 2, 3, 4]] });
    expect((await post('/async-function/relu', body, headers)).status).toBe(202);
    expect((await post('/async-function/relu', body, { 'x-call-id': '../x' })).status).toBe(400);
  });

  test('a waiting call can be cancelled, and is not run', async () => {
    const busy = Array.from({ length: 12 }, () => post('/async-function/slow', '[1,1,1,1]'));
    await Promise.all(busy);
    const { id } = (await (await post('/async-function/slow', '[2,2,2,2]')).json()) as { id: string };
    const cancelled = await call(`/async-function/${id}`, { method: 'DELETE' });
    expect(await cancelled.json()).toEqual({ id, status: 'cancelled' });
    expect(await (await call(`/async-function/${id}/status`)).json()).toMatchObject({ status: 'cancelled' });
    expect((await call(`/async-function/${id}`, { method: 'DELETE' })).status).toBe(409);
    expect((await call('/async-function/none', { method: 'DELETE' })).status).toBe(404);
  });

  const callbackOf = async (id: string, state: string): Promise<unknown> => {
    for (;;) {
      const status = (await (await call(`/async-function/${id}/status`)).json()) as { callback?: { state: string } };
      if (status.callback?.state === state) return status.callback;
      await delay(10);
    }
  };
  const sent = (headers: Record<string, string>): Promise<Response> =>
    post('/async-function/slow', '[1,2,3,4]', headers);

  test('a reply is sent to its callback, repeatedly until it is accepted, and given up in the end', async () => {
    const received: { id: string | undefined; status: string | undefined; body: string }[] = [];
    let refusals = 1;
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const { headers } = request;
        const [id, status] = [headers['x-call-id']?.toString(), headers['x-function-status']?.toString()];
        received.push({ id, status, body: Buffer.concat(chunks).toString() });
        response.writeHead(refusals-- > 0 ? 500 : 204).end();
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const { id } = (await (await sent({ 'x-callback-url': url })).json()) as { id: string };
    expect(await callbackOf(id, 'delivered')).toEqual({ state: 'delivered', attempts: 2 });
    expect(received).toEqual([
      { id, status: '201', body: '[1,2,3,4]' },
      { id, status: '201', body: '[1,2,3,4]' },
    ]);
    refusals = Infinity;
    const lost = (await (await sent({ 'x-callback-url': url })).json()) as { id: string };
    expect(await callbackOf(lost.id, 'given-up')).toMatchObject({
      attempts: 3,
      last_error: expect.stringContaining('500') as string,
    });
    expect((await sent({ 'x-callback-url': 'ftp://x/' })).status).toBe(400);
    expect((await sent({ 'x-callback-url': 'nowhere' })).status).toBe(400);
    server.close();
  });

  test('a client may choose not to wait', async () => {
    const reply = await post('/function/relu', '{"input": [[1, -1, 1, -1]]}', { prefer: 'respond-async' });
    expect([reply.status, reply.headers.get('preference-applied')]).toEqual([202, 'respond-async']);
    const { id } = (await reply.json()) as { id: string };
    expect(await (await finished(id)).json()).toEqual({ output: [[1, 0, 1, 0]] });
    // Bull Board and similar tools look for the jobs here: docs/queue.md names the place.
    const queue = new Queue('calls', { prefix: 'turntable:queues', connection: { path: redis.socket } });
    const jobs = await queue.getJobs(['completed', 'active']);
    await queue.close();
    expect(jobs.map(({ data }) => data as object)).toContainEqual(
      expect.objectContaining({ id, functionName: 'relu' }),
    );
  });

  test('lists its calls for keys that may manage it, and refuses unknown functions before it accepts', async () => {
    const listed = (await (await call('/async-function?limit=5')).json()) as { calls: object[] };
    expect(listed.calls).toHaveLength(5);
    expect(listed.calls[0]).toMatchObject({ status: expect.any(String) as string, url: expect.any(String) as string });
    expect((await call('/async-function?limit=0')).status).toBe(400);
    expect((await call('/async-function', { headers: { origin: 'http://evil.example' } })).status).toBe(403);
    expect((await post('/async-function/none', '1')).status).toBe(404);
    expect((await post('/async-function/relu', '1', { 'x-turntable-slo': 'soon' })).status).toBe(400);
    expect((await call('/async-function/none')).status).toBe(404);
  });

  test('goes on alone while Redis is away, says so, and comes back', async () => {
    await redis.kill();
    while (((await (await call('/v2/health/ready')).json()) as { redis: string }).redis !== 'down') await delay(5);
    const replies = await Promise.all(Array.from({ length: 6 }, () => post('/function/slow', '[1,2,3,4]')));
    expect(replies.map(({ status }) => status)).toEqual(replies.map(() => 201));
    const refused = await post('/async-function/relu', '{"input": [[1, 2, 3, 4]]}');
    expect([refused.status, refused.headers.get('x-turntable-error')]).toEqual([503, 'queue-unavailable']);
    const answered = await post('/function/relu', '{"input": [[1, 2, 3, 4]]}', { prefer: 'respond-async' });
    expect(answered.status).toBe(200);
    expect(await (await call('/metrics')).text()).toContain('turntable_dependency_up{dependency="redis"} 0');
    const { dependencies } = (await (await call('/api/trouble')).json()) as { dependencies: object[] };
    expect(dependencies).toEqual([
      {
        dependency: 'redis',
        state: 'down',
        text: expect.stringMatching(
          /^Redis is down: asynchronous calls are refused, and workers get no work \(.+\)\.$/,
        ),
      },
    ]);
    await redis.start();
    while (((await (await call('/v2/health/ready')).json()) as { redis: string }).redis !== 'up') await delay(5);
    const { id } = (await (await post('/async-function/relu', '{"input": [[1, 2, 3, 4]]}')).json()) as { id: string };
    expect((await finished(id)).status).toBe(200);
  });
});

test.skipIf(redisMissing !== undefined)(
  'an asynchronous call is known to the key that made it, and to no other',
  async () => {
    await using redis = await RedisServer.start();
    const keys = { ann: newApiKey(), bob: newApiKey() };
    const apiKeys = [apiKeyEntry('ann', ['invoke', 'publish'], keys.ann), apiKeyEntry('bob', ['invoke'], keys.bob)];
    await using host = await startReluHost(['relu'], { apiKeys, flags: { 'redis.url': redis.url } });
    const as = async (who: 'ann' | 'bob' | undefined, path: string, init: RequestInit = {}): Promise<Response> =>
      await fetch(host.url + path, {
        ...init,
        headers: { 'x-call-id': 'mine', ...(who && { authorization: `Bearer ${keys[who]}` }) },
      });
    const accepted = await as('ann', '/async-function/relu', input(1));
    expect([accepted.status, await accepted.json()]).toEqual([202, expect.objectContaining({ id: 'mine' })]);
    const path = '/async-function/mine';
    for (const who of ['bob', undefined] as const) {
      for (const [method, at] of [
        ['GET', path],
        ['GET', `${path}/status`],
        ['DELETE', path],
      ] as const) {
        const reply = await as(who, at, { method });
        expect([reply.status, reply.headers.get('x-turntable-error')]).toEqual([404, 'unknown-call']);
      }
    }
    // The same name is another call of another key, or of no key.
    expect((await as('bob', '/async-function/relu', input(2))).status).toBe(202);
    expect((await as(undefined, '/async-function/relu', input(3))).status).toBe(202);
    expect((await as('ann', '/async-function/relu', input(9))).status).toBe(409);
    for (const [who, value] of [
      ['ann', 1],
      ['bob', 2],
      [undefined, 3],
    ] as const) {
      await expect.poll(async () => (await as(who, path)).status).toBe(200);
      const reply = await as(who, path);
      expect(reply.headers.get('x-call-id')).toBe('mine');
      expect(await reply.text()).toContain(`[${value},0,0,0]`);
    }
    expect((await as('bob', '/async-function')).status).toBe(403);
    const { calls } = (await (await as('ann', '/async-function')).json()) as { calls: { id: string; url: string }[] };
    expect(calls.map(({ id, url }) => [id, url])).toEqual([1, 2, 3].map(() => ['mine', path]));
  },
);

test('a host without Redis says what to start', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-queue-'));
  const place = join(folder, 'functions', 'relu');
  await mkdir(place, { recursive: true });
  await writeReluModel(place);
  await writeFile(join(place, 'function.json'), '{"model": "relu.onnx"}');
  const { config } = loadConfig({
    flags: { 'listen.port': '0', dataDir: join(folder, 'data'), functionsDir: join(folder, 'functions') },
    environment: {},
  });
  const host = await startHost(config, { logger });
  const reply = await fetch(`${host.url}/async-function/relu`, { method: 'POST', body: '{}' });
  expect(reply.status).toBe(503);
  expect(((await reply.json()) as { error: string }).error).toMatch(/redis-server.*turntable serve --redis/);
  await host.stop();
  await rm(folder, { recursive: true, force: true });
});
