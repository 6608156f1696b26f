/** HTTP as browsers, proxies and monitors use it: compression, other origins, OPTIONS, HEAD, early refusals, TLS. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { request as secureRequest } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { echo, held } from './fake-pools.ts';
import { functionVersion } from './fake-store.ts';
import { inferBody, postTo, startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
  host.store.put(functionVersion('shout', { handlerPath: '/nowhere/handler.js' }));
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

interface Reply {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly body: Buffer;
}

function ask(path: string, headers: Record<string, string> = {}, method = 'GET', at = host.url): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const made = request(at, { path, method, headers, agent: false }, (reply) => {
      const chunks: Buffer[] = [];
      reply.on('data', (chunk: Buffer) => chunks.push(chunk));
      reply.on('end', () =>
        resolve({ status: reply.statusCode ?? 0, headers: reply.headers, body: Buffer.concat(chunks) }),
      );
    });
    made.on('error', reject);
    made.end();
  });
}

describe('a long text', () => {
  test.each(['gzip', 'br, GZip;q=0.5', '*'])('is compressed with gzip for clients that accept %s', async (accepted) => {
    const reply = await ask('/metrics', { 'Accept-Encoding': accepted });
    expect(reply.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
    expect(gunzipSync(reply.body).toString()).toContain('nv_inference_request_success');
    expect(Number(reply.headers['content-length'])).toBe(reply.body.byteLength);
  });

  test('is sent uncompressed to other clients, and to those that refuse compression', async () => {
    for (const headers of [
      {},
      { 'Accept-Encoding': 'identity' },
      { 'Accept-Encoding': 'br' },
      { 'Accept-Encoding': 'gzip;q=0, br;q=0' },
    ]) {
      const reply = await ask('/metrics', headers);
      expect(reply.headers['content-encoding']).toBeUndefined();
      expect(reply.body.toString()).toContain('nv_inference_request_success');
    }
  });

  test('that is short is not compressed', async () => {
    expect((await ask('/v2', { 'Accept-Encoding': 'gzip' })).headers['content-encoding']).toBeUndefined();
  });
});

describe('methods', () => {
  test('OPTIONS says which methods a path takes', async () => {
    const reply = await ask('/v2/models/pair', {}, 'OPTIONS');
    expect([reply.status, reply.headers['allow']]).toEqual([204, 'OPTIONS, HEAD, GET']);
    expect((await ask('/nowhere', {}, 'OPTIONS')).status).toBe(404);
    // Of the server as a whole, and the path of no other method.
    const whole = await ask('*', {}, 'OPTIONS');
    expect([whole.status, whole.headers['allow']]).toEqual([204, 'OPTIONS, GET, HEAD, POST, PUT, PATCH, DELETE']);
    expect((await ask('*', {}, 'GET')).status).toBe(400);
  });

  test('HEAD has the headers of GET and no body', async () => {
    const [head, get] = [await ask('/v2', {}, 'HEAD'), await ask('/v2')];
    expect([head.status, head.headers['content-length'], head.body.byteLength]).toEqual([
      200,
      get.headers['content-length'],
      0,
    ]);
  });

  test('a function with a handler is called by GET and HEAD, with its query', async () => {
    host.pools.answer = ({ input }) => {
      const url = input.kind === 'request' ? `${input.request.method} ${input.request.url}` : '';
      return {
        ...echo({ key: '', input, options: {} }),
        output: { kind: 'response', response: { status: 200, headers: {}, body: Buffer.from(url) } },
      };
    };
    expect((await ask('/function/shout?loud=1')).body.toString()).toBe('GET /function/shout?loud=1');
    const head = await ask('/function/shout', {}, 'HEAD');
    expect([head.status, head.body.byteLength]).toEqual([200, 0]);
    host.pools.answer = echo;
  });

  test.each(['GET', 'PUT', 'PATCH', 'DELETE'])(
    'a function without one says how it is called, and not by %s',
    async (method) => {
      const reply = await ask('/function/pair', {}, method);
      expect([reply.status, reply.headers['allow'], JSON.parse(reply.body.toString())]).toEqual([
        405,
        'OPTIONS, POST',
        { error: "function 'pair' has no handler, so that it is called with POST" },
      ]);
    },
  );

  test('/healthz is 200 while the host takes work, and 503 when it does not', async () => {
    expect((await ask('/healthz')).status).toBe(200);
    host.lifecycle.phase = 'draining';
    expect((await ask('/healthz')).status).toBe(503);
    host.lifecycle.phase = 'ready';
  });
});

/** Reading and calling, besides managing. */
const everyRoute = [
  ['GET', '/metrics'],
  ['GET', '/functions'],
  ['GET', '/api/functions'],
  ['GET', '/api/trouble'],
  ['GET', '/api/events'],
  ['GET', '/v2/models/pair/config'],
  ['POST', '/v2/models/pair/infer'],
  ['POST', '/function/pair'],
  ['DELETE', '/functions/pair'],
  ['POST', '/v2/repository/index'],
] as const;

describe('a host without keys', () => {
  test.each(everyRoute)('%s %s is not for a foreign host name or another origin', async (method, path) => {
    for (const headers of [
      { Host: 'rebound.example' },
      { Origin: 'https://evil.example' },
      { Origin: 'null' },
      { 'Sec-Fetch-Site': 'cross-site' },
      { 'Sec-Fetch-Site': 'same-site', Origin: 'http://localhost:1' },
    ]) {
      expect((await ask(path, headers, method)).status, JSON.stringify(headers)).toBe(403);
    }
  });

  test('is open to its own page, to programs, and to a link to the dashboard', async () => {
    const own = { Origin: host.url, 'Sec-Fetch-Site': 'same-origin' };
    expect((await ask('/functions', own)).status).toBe(200);
    expect((await ask('/functions')).status).toBe(200);
    expect((await ask('/', { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate' })).status).toBe(200);
    const call = { 'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate' };
    expect((await ask('/function/shout', call)).status).toBe(403);
  });

  test('admits the pages of configured origins, and answers their preflights', async () => {
    await using open = await startTestHost({ config: { cors: { origins: ['https://app.example'] } } });
    const origin = { Origin: 'https://app.example', 'Sec-Fetch-Site': 'cross-site' };
    const read = await ask('/v2', origin, 'GET', open.url);
    expect([read.status, read.headers['access-control-allow-origin']]).toEqual([200, 'https://app.example']);
    const preflight = await ask(
      '/v2/models/pair/infer',
      { ...origin, 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'content-type' },
      'OPTIONS',
      open.url,
    );
    expect([preflight.status, preflight.headers]).toMatchObject([
      204,
      {
        'access-control-allow-origin': 'https://app.example',
        'access-control-allow-headers': 'content-type',
        'access-control-allow-methods': expect.stringContaining('POST') as string,
      },
    ]);
    expect((await ask('/v2', { Origin: 'https://other.example' }, 'GET', open.url)).status).toBe(403);
  });

  test.each([[['https://app.example']], [['*']]])(
    'lets no page of another origin manage functions, whatever is configured: %j',
    async (origins) => {
      await using open = await startTestHost({ config: { cors: { origins } } });
      const managing = [
        ['PUT', '/functions/new'],
        ['DELETE', '/functions/pair'],
        ['POST', `/blobs/sha256:${'0'.repeat(64)}`],
        ['POST', '/v2/repository/models/pair/load'],
      ] as const;
      for (const [method, path] of managing) {
        for (const site of ['cross-site', 'same-site', undefined]) {
          const headers = { Origin: 'https://app.example', ...(site !== undefined && { 'Sec-Fetch-Site': site }) };
          expect((await ask(path, headers, method, open.url)).status, `${method} ${path} ${site}`).toBe(403);
        }
      }
      const own = { Origin: open.url, 'Sec-Fetch-Site': 'same-origin' };
      expect((await ask('/functions/pair', own, 'DELETE', open.url)).status).toBe(204);
      expect((await ask('/functions/pair', {}, 'DELETE', open.url)).status).toBe(404);
    },
  );
});

test('a client that writes a whole body over the limit reads the refusal', async () => {
  const bytes = 80 * 1024 * 1024;
  for (let round = 0; round < 3; round++) {
    const socket = connect(Number(new URL(host.url).port), '127.0.0.1');
    const received: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => received.push(chunk));
    const closed = new Promise<void>((resolve, reject) => {
      socket.once('close', () => resolve());
      socket.once('error', reject);
    });
    socket.write(`POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${bytes}\r\n\r\n`);
    const piece = Buffer.alloc(1024 * 1024);
    for (let sent = 0; sent < bytes; sent += piece.byteLength) {
      if (!socket.write(piece)) await new Promise((resolve) => socket.once('drain', resolve));
    }
    await closed;
    expect(Buffer.concat(received).toString()).toMatch(/^HTTP\/1.1 413 .*over the limit of 200000 bytes/s);
  }
});

test('bodies in flight are limited by their bytes after decompression', async () => {
  await using small = await startTestHost({
    config: { limits: { bodyBytesMax: 1_000_000, inFlightBytesMax: 2_500_000 } },
  });
  const packed = gzipSync(`${JSON.stringify(inferBody)}${' '.repeat(900_000)}`);
  expect(packed.byteLength).toBeLessThan(5000);
  const { answer, release } = held();
  small.pools.answer = answer;
  const refused: Response[] = [];
  const calls = Array.from({ length: 10 }, async () => {
    const reply = await postTo(small, '/v2/models/pair/infer', packed, { 'Content-Encoding': 'gzip' });
    if (reply.status === 429) refused.push(reply);
    return reply.status;
  });
  await expect.poll(() => refused.length + small.pools.invocations.length).toBe(calls.length);
  expect(await refused[0]!.text()).toMatch(/hold \d+ bytes; with this one they would be over the limit of 2500000/);
  // Two fit at a time; several that are decompressed at once can keep each other out.
  const fitting = small.pools.invocations.length;
  expect([1, 2]).toContain(fitting);
  release();
  expect((await Promise.all(calls)).filter((status) => status === 200)).toHaveLength(fitting);
  small.pools.answer = echo;
  expect((await postTo(small, '/v2/models/pair/infer', inferBody)).status).toBe(200);
});

test('a function that does not answer leaves room for the others, and can be removed', async () => {
  await using busy = await startTestHost({ config: { limits: { requestsInFlightMax: 20 } } });
  busy.store.put(functionVersion('quiet'));
  const { answer, release } = held();
  busy.pools.answer = (invocation) => (invocation.key.startsWith('pair') ? answer(invocation) : echo(invocation));
  const calls = Array.from({ length: 30 }, () => postTo(busy, '/v2/models/pair/infer', inferBody));
  const first = await Promise.race(calls);
  expect([first.status, await first.text()]).toEqual([
    429,
    expect.stringContaining("'pair' has 10 requests in progress"),
  ]);
  expect((await postTo(busy, '/v2/models/quiet/infer', inferBody)).status).toBe(200);
  expect((await postTo(busy, '/v2/repository/models/pair/unload', {})).status).toBe(200);
  expect((await fetch(`${busy.url}/functions/pair`, { method: 'DELETE' })).status).toBe(204);
  release();
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  expect(statuses.filter((status) => status === 429).length).toBe(20);
});

test('HTTPS is served with the certificate from two settings', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'turntable-tls-'));
  try {
    const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    execFileSync(
      'openssl',
      // prettier-ignore
      ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=localhost'],
      { stdio: 'ignore' },
    );
    await using secure = await startTestHost({
      config: { listen: { host: '127.0.0.1', port: 0, tls: { certFile, keyFile } } },
    });
    expect(secure.url).toMatch(/^https:/);
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const made = secureRequest(
        `${secure.url}/v2/health/ready`,
        { rejectUnauthorized: false, agent: false },
        (reply) => resolve(reply.resume().statusCode),
      );
      made.on('error', reject);
      made.end();
    });
    expect(status).toBe(200);
    await expect(
      startTestHost({ config: { listen: { host: '127.0.0.1', port: 0, tls: { certFile: keyFile, keyFile } } } }),
    ).rejects.toThrow(/not a PEM certificate and its key/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
