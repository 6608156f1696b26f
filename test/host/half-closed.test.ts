/** Clients that send FIN behind their request: those that still read get their answer, those that are gone are forgotten. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { connect as connectTcp, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { routes } from '../../src/host/http/routes.ts';
import { echo, held } from './fake-pools.ts';
import { functionVersion } from './fake-store.ts';
import { RawClient } from './raw-client.ts';
import { startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
  host.store.put(functionVersion('handled', { handlerPath: '/nowhere/handler.js' }));
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});
afterEach(() => {
  host.pools.answer = echo;
});

const client = (): RawClient => new RawClient(host.server.port);
const get = (path: string, version = '1.1', headers = ''): string =>
  `GET ${path} HTTP/${version}\r\nHost: localhost\r\n${headers}\r\n`;
const post = (path: string, body: string, version = '1.1', headers = ''): string =>
  `POST ${path} HTTP/${version}\r\nHost: localhost\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`;
const call = (value: number, version?: string, headers?: string): string =>
  post('/function/pair', `{"input":[[${value},0]]}`, version, headers);

/** The answer to what is sent together with FIN, up to the host's own FIN. */
function answerTo(request: string): Promise<string> {
  const { socket } = client();
  socket.end(request);
  return textOf(socket);
}

async function textOf(socket: Socket): Promise<string> {
  let text = '';
  socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  await once(socket, 'close');
  return text;
}

const statusesOf = (text: string): number[] =>
  Array.from(text.matchAll(/^HTTP\/1\.1 (\d+)/gm), ([, status]) => Number(status));
const outputsOf = (text: string): number[] =>
  Array.from(text.matchAll(/"output":\[\[(\d+),0\]\]/g), ([, value]) => Number(value));

const isStream = (path: string): boolean => path === '/api/events' || path.endsWith('/log');
const paths = routes.filter(({ method, path }) => method === 'GET' && !isStream(path)).map(({ path }) => path);
const filled = (path: string): string =>
  path
    .replace('/function/:name', '/function/handled')
    .replace(':name', 'pair')
    .replace(':version', '1')
    .replace(':file', 'page.js')
    .replaceAll(/:\w+(\{\.\+\})?/g, 'none');

describe('a half-closed client gets', () => {
  test.each(paths)('the answer of GET %s', async (path) => {
    const expected = await fetch(host.url + filled(path));
    const text = await answerTo(get(filled(path)));
    expect(statusesOf(text)).toEqual([expected.status]);
    const [head = ''] = text.split('\r\n\r\n');
    expect(head.toLowerCase()).toContain(`content-type: ${expected.headers.get('content-type')!.toLowerCase()}`);
  });

  test.each([
    ['with HTTP/1.1', call(7)],
    ['with HTTP/1.0', call(7, '1.0')],
    ['with HTTP/1.0 and keep-alive', call(7, '1.0', 'Connection: keep-alive\r\n')],
    ['with Connection: close', call(7, '1.1', 'Connection: close\r\n')],
    ['that waits for 100 Continue', call(7, '1.1', 'Expect: 100-continue\r\n')],
  ])('the answer of a call %s', async (_how, request) => {
    const text = await answerTo(request);
    expect(statusesOf(text).at(-1)).toBe(200);
    expect(outputsOf(text)).toEqual([7]);
  });

  test('the answer of an upload, and of a request for a function that is not there', async () => {
    expect(statusesOf(await answerTo(post('/functions/new', 'model').replace('POST', 'PUT')))).toEqual([201]);
    expect(statusesOf(await answerTo(post('/function/none', '{}')))).toEqual([404]);
  });

  test('the answers of all requests that it sent before, in their order', async () => {
    const values = Array.from({ length: 20 }, (_, value) => value);
    expect(outputsOf(await answerTo(values.map((value) => call(value)).join('')))).toEqual(values);
  });

  test('the answers of complete requests, and an error for the one that it cut off', async () => {
    const text = await answerTo(call(1) + call(2).slice(0, -5));
    expect(statusesOf(text)).toEqual([200, 400]);
  });

  test.each([
    ['one request', call(1), [1]],
    ['one request of HTTP/1.0', call(1, '1.0'), [1]],
    ['one request that waits for 100 Continue', call(1, '1.1', 'Expect: 100-continue\r\n'), [1]],
    ['three requests', call(1) + call(2) + call(3), [1, 2, 3]],
  ])('an answer that takes its time, to %s', async (_what, request, values) => {
    for (const sentAhead of [/^HTTP\/1\.1 100|^$/, /H$|HT$/, /HTT$/]) {
      const hold = held();
      host.pools.answer = hold.answer;
      const waiting = client();
      waiting.socket.end(request);
      await hold.started;
      await waiting.until(sentAhead);
      hold.release();
      const text = await waiting.toEnd();
      expect(statusesOf(text).filter((status) => status !== 100)).toEqual(values.map(() => 200));
      expect(outputsOf(text)).toEqual(values);
    }
  });

  test('an answer behind an earlier one, each of which takes its time', async () => {
    const [first, second] = [held(), held()];
    host.pools.answer = (invocation) => (host.pools.invocations.length % 2 === 1 ? first : second).answer(invocation);
    host.pools.invocations.length = 0;
    const waiting = client();
    waiting.socket.end(call(1) + call(2));
    await Promise.all([first.started, second.started]);
    await waiting.until(/^HT$/);
    first.release();
    await waiting.until(/"output":\[\[1,0\]\]\}\nH/);
    second.release();
    const text = await waiting.toEnd();
    expect([statusesOf(text), outputsOf(text)]).toEqual([
      [200, 200],
      [1, 2],
    ]);
  });

  test('what happens, as long as it listens', async () => {
    const listening = client();
    listening.socket.end(get('/api/events'));
    expect(statusesOf(await listening.until(/event: tick[\s\S]*event: tick/))).toEqual([200]);
    listening.socket.destroy();
  });
});

describe('a client that is gone', () => {
  const leave: [string, (socket: Socket) => void][] = [
    ['closed its connection', (socket) => socket.destroy()],
    ['reset its connection', (socket) => socket.resetAndDestroy()],
  ];

  test.each(leave)('has its call cancelled when it %s', async (_how, close) => {
    const hold = held();
    host.pools.answer = hold.answer;
    const leaving = client().write(call(1));
    await hold.started;
    close(leaving.socket);
    expect(await hold.ended).toBe('aborted');
  });

  test.each(leave)('has its call cancelled when it %s after FIN', async (_how, close) => {
    const hold = held();
    host.pools.answer = hold.answer;
    const leaving = client();
    leaving.socket.end(call(1));
    await hold.started;
    await leaving.until(/^HT$/);
    close(leaving.socket);
    expect(await hold.ended).toBe('aborted');
  });

  test('no longer listens', async () => {
    const connected = once(host.server.server, 'connection') as Promise<[Socket]>;
    const listening = client().write(get('/functions/pair/log?follow=true', '1.1', 'Accept: text/event-stream\r\n'));
    const [connection] = await connected;
    await listening.until(/retry/);
    listening.socket.destroy();
    // Its error is the sign that the client is gone.
    await new Promise((resolve) => connection.once('close', resolve));
    expect(connection.errored).toMatchObject({ code: expect.stringMatching(/EPIPE|ECONNRESET/) as string });
  });
});

describe.skipIf(spawnSync('openssl', ['version']).error !== undefined)('over TLS', () => {
  let folder: string;
  let secure: TestHost;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-half-'));
    const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    spawnSync(
      'openssl',
      // prettier-ignore
      ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=localhost'],
    );
    secure = await startTestHost({ config: { listen: { host: '127.0.0.1', port: 0, tls: { certFile, keyFile } } } });
  });
  afterAll(async () => {
    await secure?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  const connect = async (): Promise<Socket> => {
    const ca = await readFile(join(folder, 'cert.pem'));
    const plain = connectTcp({ port: secure.server.port, host: '127.0.0.1', allowHalfOpen: true });
    const socket = connectTls({ socket: plain, ca, servername: 'localhost' });
    socket.on('error', () => undefined);
    await once(socket, 'secureConnect');
    return socket;
  };

  test('a half-closed client gets its answer', async () => {
    const hold = held();
    secure.pools.answer = hold.answer;
    const socket = await connect();
    const text = textOf(socket);
    socket.end(call(1) + call(2));
    await hold.started;
    await once(socket, 'data');
    hold.release();
    expect(outputsOf(await text)).toEqual([1, 2]);
  });

  test('the call of a client that is gone is cancelled', async () => {
    const hold = held();
    secure.pools.answer = hold.answer;
    const socket = await connect();
    socket.write(call(1));
    await hold.started;
    socket.destroy();
    expect(await hold.ended).toBe('aborted');
  });

  test.each([
    ['at once', []],
    ['within its first message', [0x16, 3, 1, 0, 200, 1]],
  ])('a client that ends its handshake %s is let go', async (_when, bytes) => {
    const socket = connectTcp({ port: secure.server.port, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => undefined);
    socket.resume().end(Buffer.from(bytes));
    expect(await once(socket, 'close')).toHaveLength(1);
  });
});
