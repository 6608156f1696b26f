/** Client errors below the level of a request, over raw connections. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { tensorOf } from '../../src/tensor/index.ts';
import { waitLimitMs } from '../time-limits.ts';
import { echo, held } from './fake-pools.ts';
import { RawClient } from './raw-client.ts';
import { inferBody, startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
/** Its clients are all too slow. */
let hurried: TestHost;
beforeAll(async () => {
  host = await startTestHost({ config: { limits: { bodyTimeoutMs: waitLimitMs } } });
  hurried = await startTestHost({ config: { limits: { bodyTimeoutMs: 400, inFlightBytesMax: 48e6 } } });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
  await hurried[Symbol.asyncDispose]();
});

const json = '{"input":[[1,2]]}';
const call = (body = json, headers = ''): string =>
  `POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;

function connectTo(at = host): RawClient {
  return new RawClient(at.server.port);
}

/** Status codes in the received text. */
function statuses(received: string): number[] {
  return [...received.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => Number(status));
}

describe('a connection is told why it is closed', () => {
  const malformed: [string, string, number][] = [
    ['what is not HTTP', 'GARBAGE\r\n\r\n', 400],
    ['a header without a colon', 'GET / HTTP/1.1\r\nHost localhost\r\n\r\n', 400],
    ['a Content-Length that is no number', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n', 400],
    ['a Content-Length beside chunks', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n', 400],
    ['a chunk size that is no number', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n', 400],
    ['chunks that are compressed', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n0\r\n\r\n', 501],
    ['headers over the limit', `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'a'.repeat(20_000)}\r\n\r\n`, 431],
    ['a Host that is no name', 'GET /v2 HTTP/1.1\r\nHost: a b\r\n\r\n', 400],
    ['CONNECT', 'CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n', 405],
    ['headers that never end', 'GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ', 408],
    ['a body that never ends', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc', 408],
    ['an upload that stops moving', 'PUT /functions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc', 408],
    ['a body over the limit', `POST /function/pair HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n${'a'.repeat(300_000)}`, 413],
  ]; // prettier-ignore
  test.each(malformed)('for %s', async (_what, request, status) => {
    const client = connectTo(status === 408 ? hurried : host).write(request);
    const received = await client.toEnd();
    expect(statuses(received)).toEqual([status]);
    const [head = '', body = ''] = received.split('\r\n\r\n');
    expect(head).toMatch(/^content-type: application\/json$/im);
    expect(head).toMatch(/^x-turntable-error: [a-z-]+$/im);
    expect(JSON.parse(body)).toEqual({ error: expect.any(String) });
  });

  test.each([
    ['that speaks HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', /HTTP\/2 came; gRPC has a port of its own/],
    ['that ends within its headers', 'POST / HTTP/1.1\r\nHo', /ended the connection within a request/],
    ['that ends within its body', call().slice(0, -3), /ended the connection within a request/],
    ['that ends within a chunk', 'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab', /within a request/],
  ])('to a client %s, in words about that', async (_what, sent, said) => {
    const client = connectTo();
    client.socket.end(sent);
    expect(await client.toEnd()).toMatch(said);
  }); // prettier-ignore

  test('for an upload that sends a byte now and then', async () => {
    const client = connectTo(hurried).write(
      'PUT /functions/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc',
    );
    const trickle = setInterval(() => client.write('d'), 10);
    try {
      expect(await client.until(/too slowly/)).toMatch(
        /^HTTP\/1\.1 408 [\s\S]*"the body came too slowly: \d+ bytes within 400ms/,
      );
    } finally {
      clearInterval(trickle);
    }
    client.socket.destroy();
  });

  test('and ended when it has more than sixteen requests without a reply', async () => {
    const few = connectTo().write(call().repeat(16));
    await few.until(/(?:HTTP\/1\.1 200[\s\S]*){16}/);
    few.write(call());
    await few.until(/(?:HTTP\/1\.1 200[\s\S]*){17}/);
    few.socket.destroy();
    const before = host.pools.invocations.length;
    // The first reply never ends, and the others come after it.
    const many = connectTo().write(`GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n${call().repeat(200)}`);
    await many.toEnd();
    expect(host.pools.invocations.length - before).toBeLessThan(16);
  });

  test('a chunked body over the limit is refused while it arrives', async () => {
    const client = connectTo();
    client.write('POST /function/pair HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    for (let sent = 0; sent < 250_000; sent += 50_000) client.write(`c350\r\n${'a'.repeat(50_000)}\r\n`);
    expect(statuses(await client.until(/limit/))).toEqual([413]);
    client.write('0\r\n\r\n');
    await client.closed;
  });
});

test('a connection that was never used does not delay the end of the host', async () => {
  await using idle = await startTestHost();
  const connected = once(idle.server.server, 'connection');
  const client = connectTo(idle);
  await connected;
  expect(await idle.server.close(waitLimitMs)).toBe(true);
  expect(await client.toEnd()).toBe('');
});

test('a connection that was never used is closed without a reply, and is no failure', async () => {
  const logged = hurried.log.length;
  expect(await connectTo(hurried).toEnd()).toBe('');
  expect(hurried.log.slice(logged).filter(({ msg }) => msg === 'connection failed')).toEqual([]);
});

describe('a connection stays usable', () => {
  test('after errors whose body was read, or was short', async () => {
    const client = connectTo();
    client.write(call('{"input":[NaN]}') + call('{}').replace('/function/pair', '/function/none') + call());
    await client.until(/"output"/);
    expect(statuses(client.received)).toEqual([400, 404, 200]);
    client.socket.destroy();
  });

  test('for requests sent before the answers to earlier ones', async () => {
    const client = connectTo();
    const bodies = Array.from({ length: 20 }, (_, index) => `{"input":[[${index},0]]}`);
    client.write(bodies.map((body) => call(body)).join(''));
    await client.until(/\[19,0\]/);
    const answers = [...client.received.matchAll(/"output":\[\[(\d+),0\]\]/g)].map(([, index]) => Number(index));
    expect(answers).toEqual(bodies.map((_, index) => index));
    client.socket.destroy();
  });

  test('when a body comes in single bytes', async () => {
    const client = connectTo();
    const whole = call();
    for (const character of whole) client.write(character);
    expect(statuses(await client.until(/"output"/))).toEqual([200]);
    client.socket.destroy();
  });

  test('after HEAD, and for HTTP/1.0 without Host', async () => {
    const client = connectTo();
    client.write('HEAD /v2 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await client.until(/"live"/);
    expect(statuses(client.received)).toEqual([200, 200]);
    client.socket.destroy();
    const old = connectTo().write('GET /v2/health/live HTTP/1.0\r\n\r\n');
    expect(await old.toEnd()).toContain('{"live":true}');
  });
});

test('an HTTP/1.1 request without Host is refused in JSON', async () => {
  const client = connectTo().write('GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n');
  expect(await client.toEnd()).toMatch(/^HTTP\/1\.1 400 [\s\S]*no Host header/);
});

test('trailing garbage does not replace the answer before it', async () => {
  const hold = held();
  host.pools.answer = hold.answer;
  const client = connectTo().write(`${call()}GARBAGE\r\n\r\n`);
  await hold.started;
  hold.release();
  expect(statuses(await client.toEnd())).toEqual([200, 400]);
  host.pools.answer = echo;
});

function expecting(path: string, length: number): string {
  return `PUT ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`;
}

describe('Expect: 100-continue', () => {
  test('is answered before an upload is read', async () => {
    const client = connectTo().write(expecting('/functions/expected', 5));
    await client.until(/^HTTP\/1\.1 100 Continue/);
    client.write('model');
    expect(statuses(await client.until(/"sha256"/))).toEqual([100, 201]);
    client.socket.destroy();
  });

  test('is refused early if the upload is too large, or its name is taken', async () => {
    const large = connectTo().write(expecting('/functions/large', 10_000_000));
    expect(statuses(await large.until(/"error"/))).toEqual([413]);
    large.socket.end();
    await large.closed;
    const busy = connectTo().write(expecting('/functions/busy', 10));
    expect(statuses(await busy.until(/"error"/))).toEqual([409]);
    busy.socket.end();
    await busy.closed;
  });

  test('is nothing to a client of HTTP/1.0, which knows one answer to a request', async () => {
    const client = connectTo().write(call(json, 'Expect: 100-continue\r\n').replace('HTTP/1.1', 'HTTP/1.0'));
    expect(statuses(await client.toEnd())).toEqual([200]);
  });

  test('other expectations are refused', async () => {
    const client = connectTo().write('GET /v2 HTTP/1.1\r\nHost: localhost\r\nExpect: wonders\r\n\r\n');
    expect(statuses(await client.until(/"error"/))).toEqual([417]);
    client.socket.destroy();
  });
});

test('a client that leaves in the middle of its body leaves nothing behind', async () => {
  const uploads = host.store.uploads.length;
  const client = connectTo().write(
    'PUT /functions/left HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc',
  );
  // The log line is written when the request is over.
  await vi.waitUntil(() => host.store.uploads.length > uploads, { interval: 10 });
  client.socket.destroy();
  const line = (): object | undefined => host.log.find(({ path }) => path === '/functions/left');
  await vi.waitUntil(line, { interval: 10 });
  expect(host.store.uploads.at(-1)).toMatchObject({ aborted: true });
  expect(line()).toMatchObject({ status: 499, code: 'client-gone' });
  expect(host.store.find('left')).toBeUndefined();
});

test('a client that does not read its reply is cut off', async () => {
  await withLargeReplies(async (infer) => {
    const [[connection], client] = await Promise.all([
      once(hurried.server.server, 'connection') as Promise<[Socket]>,
      Promise.resolve(connectTo(hurried)),
    ]);
    client.socket.pause();
    client.write(infer);
    await once(connection, 'close');
    expect(hurried.statistics.requestsInFlight).toBe(0);
    client.socket.destroy();
  });
});

/** Answers calls with 32 MB of binary data. */
async function withLargeReplies(work: (infer: string) => Promise<void>): Promise<void> {
  const { answer } = hurried.pools;
  // One for each: the memory of an answer is freed when it has been sent.
  hurried.pools.answer = () => {
    const large = tensorOf('y', 'FP32', [1, 8_000_000], new Float32Array(8_000_000));
    return { output: { kind: 'tensors', tensors: [large] } };
  };
  try {
    const body = JSON.stringify({ ...inferBody, parameters: { binary_data_output: true } });
    await work(call(body).replace('/function/pair', '/v2/models/pair/infer'));
  } finally {
    hurried.pools.answer = answer;
  }
}

test('a client that reads its reply a little at a time is cut off as well', async () => {
  await withLargeReplies(async (infer) => {
    const [[connection], client] = await Promise.all([
      once(hurried.server.server, 'connection') as Promise<[Socket]>,
      Promise.resolve(connectTo(hurried)),
    ]);
    client.socket.pause();
    client.write(infer);
    const sip = setInterval(() => void client.socket.read(16), 20);
    await once(connection, 'close');
    clearInterval(sip);
    expect(client.socket.bytesRead).toBeLessThan(32e6);
    client.socket.destroy();
  });
});

test('a large reply counts against limits.inFlight until it is read or its client has gone', async () => {
  await withLargeReplies(async (infer) => {
    const slow = connectTo(hurried);
    const began = once(hurried.server.server, 'connection') as Promise<[Socket]>;
    slow.socket.pause();
    slow.write(infer);
    const [connection] = await began;
    // Its reply is under way.
    await vi.waitUntil(() => connection.writableLength > 0, { interval: 10 });
    const other = connectTo(hurried);
    other.write(infer);
    expect(await other.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 429 [\s\S]*X-Turntable-Error: too-many-requests/);
    other.socket.destroy();
    // A reset is an error first.
    const closed = new Promise((resolve) => connection.once('close', resolve));
    slow.socket.destroy();
    await closed;
    const third = connectTo(hurried);
    third.write(infer);
    expect(await third.until(/\r\n\r\n/)).toMatch(/^HTTP\/1\.1 200 /);
    third.socket.destroy();
  });
});

describe('the host that a request is for', () => {
  test.each([
    ['two Host headers', 'GET /v2 HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n', 400],
    ['two equal ones', 'GET /v2 HTTP/1.1\r\nHost: localhost\r\nhOST: localhost\r\n\r\n', 400],
    ['a target of another host', 'GET http://evil.example/v2 HTTP/1.1\r\nHost: localhost\r\n\r\n', 400],
    ['a target of the same host', 'GET http://LOCALHOST/v2 HTTP/1.1\r\nHost: localhost\r\n\r\n', 200],
    ['a host in the query', 'GET /v2?url=http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n', 200],
  ])('%s', async (_what, request, status) => {
    const client = connectTo(host);
    client.write(request);
    expect(await client.until(/\r\n\r\n/)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    client.socket.destroy();
  });
});

const curlIsMissing = spawnSync('curl', ['--version']).error !== undefined;

async function curl(...args: string[]): Promise<{ code: number; out: string }> {
  const child = spawn('curl', ['-sS', '-w', '\n%{http_code}', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  const [out, , [code]] = (await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])) as [
    string,
    string,
    [number],
  ];
  return { code, out };
}

describe.skipIf(curlIsMissing)('curl shows the answer', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-http-'));
    await writeFile(join(folder, 'model.onnx'), Buffer.alloc(300_000, 1));
    await writeFile(join(folder, 'large.onnx'), Buffer.alloc(30_000_000, 1));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  test('to an upload in one call', async () => {
    const { code, out } = await curl('-T', join(folder, 'model.onnx'), `${host.url}/functions/curled?slo=50ms`);
    expect([code, out.split('\n').at(-1)]).toEqual([0, '201']);
    const posted = await curl(
      '-X',
      'PUT',
      '--data-binary',
      `@${join(folder, 'model.onnx')}`,
      `${host.url}/functions/curled`,
    );
    expect([posted.code, posted.out.split('\n').at(-1)]).toEqual([0, '200']);
  });

  test('to an upload as a form with settings', async () => {
    const model = `model=@${join(folder, 'model.onnx')}`;
    const { code, out } = await curl(
      '-X',
      'PUT',
      '-F',
      model,
      '-F',
      'settings={"slo":"70ms"}',
      `${host.url}/functions/form`,
    );
    expect([code, out.split('\n').at(-1)]).toEqual([0, '201']);
    expect(host.store.uploads.at(-1)!.settings).toEqual({ slo: '70ms' });
  });

  test.each([
    ['with Expect', []],
    ['without it', ['-H', 'Expect:']],
    ['in chunks of unknown number', ['-H', 'Transfer-Encoding: chunked', '-H', 'Expect:']],
  ])('to an upload that is too large, sent %s', async (_how, flags) => {
    const { code, out } = await curl('-T', join(folder, 'large.onnx'), ...flags, `${host.url}/functions/large`);
    expect([code, out.split('\n').at(-1)]).toEqual([0, '413']);
    expect(JSON.parse(out.split('\n')[0] ?? '')).toEqual({ error: expect.stringContaining('over the limit') });
  });

  test('to a wrong key, before a large body is sent', async () => {
    await using guarded = await startTestHost({ config: { apiKeys: ['right'], limits: { uploadBytesMax: 1e9 } } });
    const flags = ['-H', 'Authorization: Bearer wrong', '-H', 'Expect:'];
    const { code, out } = await curl('-T', join(folder, 'large.onnx'), ...flags, `${guarded.url}/functions/x`);
    expect([code, out.split('\n').at(-1)]).toEqual([0, '401']);
  });
});

/** How calls of the function ended, and how many were their client's own mistake. */
const endedOf = ({ history }: TestHost): object => {
  const { in_slo, late, shed, failed, client } = history.counts(history.span(60_000, Date.now(), 'pair'), 'pair');
  return { in_slo, late, shed, failed, client };
};
const none = { in_slo: 0, late: 0, shed: 0, failed: 0, client: 0 };

describe('a call is counted once', () => {
  test('as late, if its client left after the SLO though its body was not complete', async () => {
    await using own = await startTestHost();
    const client = connectTo(own).write(
      'POST /function/pair HTTP/1.1\r\nHost: localhost\r\nX-Turntable-SLO: 1ms\r\nContent-Length: 100\r\n\r\n{',
    );
    await expect.poll(() => own.statistics.started().get('pair')).toBe(1);
    client.socket.destroy();
    await expect.poll(() => endedOf(own)).toEqual({ ...none, late: 1 });
  });

  test('as answered, if its reply is over a limit', async () => {
    await using own = await startTestHost({ config: { limits: { replyBytesMax: 10 } } });
    const rows = Array.from({ length: 20_000 }, () => [1, 2]);
    const { status } = await fetch(`${own.url}/function/pair`, {
      method: 'POST',
      headers: { 'x-turntable-slo': '10m' },
      body: JSON.stringify({ input: rows }),
    });
    expect(status).toBeGreaterThanOrEqual(400);
    expect(endedOf(own)).toEqual({ ...none, in_slo: 1 });
  });
});
