/** A host that was told to stop: what it answers while work is left, and when it stops listening. */
import { once } from 'node:events';
import { writeFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { createGrpcClient } from '../support/grpc-client.ts';
import { writeReluModel } from '../support/models.ts';
import { RawClient } from './raw-client.ts';

let folder: string;
let host: RunningHost;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-drain-'));
});

afterEach(async () => {
  await writeFile(join(folder, 'go'), '');
  await host?.stop();
  await rm(folder, { recursive: true, force: true });
});

/** A host with the function `slow`, whose calls wait until the file `go` is there. */
async function start(flags: Record<string, string> = {}): Promise<void> {
  const place = join(folder, 'functions', 'slow');
  await mkdir(place, { recursive: true });
  await writeReluModel(place);
  const settings = { model: 'relu.onnx', handler: 'handler.ts', timeouts: { handler: '600s' } };
  await writeFile(join(place, 'function.json'), JSON.stringify(settings));
  await writeFile(
    join(place, 'handler.ts'),
    `import { existsSync } from 'node:fs';
     export const preprocess = async () => {
       while (!existsSync(${JSON.stringify(join(folder, 'go'))})) await new Promise((resolve) => setTimeout(resolve, 10));
       return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
     };
     export const postprocess = (): string => 'answered';`,
  );
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      'grpc.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '1',
      drain: '300s',
      ...flags,
    },
  });
  host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
}

const ask = (path: string, init: RequestInit = {}): Promise<Response> => fetch(host.url + path, init);
const call = (): Promise<Response> => ask('/function/slow', { method: 'POST', body: '' });

async function inFlight(count: number): Promise<void> {
  const series = `turntable_requests_in_flight ${count}\n`;
  await vi.waitUntil(async () => (await (await ask('/metrics')).text()).includes(series), { interval: 10 });
}

async function begun(): Promise<{ readonly slow: Promise<Response>; readonly stopped: Promise<boolean> }> {
  const slow = call();
  await inFlight(1);
  return { slow, stopped: host.stop() };
}

describe('while a call is in progress, a host that was told to stop', () => {
  test('still listens, and tells callers and load balancers that it drains', async () => {
    await start();
    const before = new RawClient(Number(new URL(host.url).port));
    before.write('GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await before.until(/"live":true/);
    const { slow, stopped } = await begun();

    const refused: [string, RequestInit][] = [
      ['/healthz', {}],
      ['/v2/health/ready', {}],
      ['/v2/models/slow/ready', {}],
      ['/function/slow', { method: 'POST', body: '' }],
      ['/v2/models/slow/infer', { method: 'POST', body: '{}' }],
      ['/functions/other', { method: 'PUT', body: 'model' }],
      ['/v2/repository/models/slow/load', { method: 'POST' }],
    ];
    for (const [path, init] of refused) {
      const reply = await ask(path, init);
      expect([path, reply.status, reply.headers.get('x-turntable-error')]).toEqual([path, 503, 'draining']);
      expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(reply.headers.get('connection')).toBe('close');
      await reply.arrayBuffer();
    }
    for (const path of ['/v2/health/live', '/metrics', '/functions']) {
      const reply = await ask(path);
      expect([path, reply.status, reply.headers.get('connection')]).toEqual([path, 200, 'close']);
      await reply.arrayBuffer();
    }
    // A connection that was kept from before is told, and closed.
    before.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(await before.toEnd()).toMatch(/HTTP\/1\.1 503 [\s\S]*draining/);

    using grpc = createGrpcClient(`127.0.0.1:${host.grpcPort}`);
    await expect(grpc.infer('slow', [1, 2, 3, 4])).rejects.toMatchObject({ code: status.UNAVAILABLE });

    await writeFile(join(folder, 'go'), '');
    expect(await (await slow).text()).toBe('answered');
    expect(await stopped).toBe(true);
    await expect(ask('/healthz')).rejects.toThrow(/fetch failed/);
  });

  test('waits no longer than `drain` says', async () => {
    await start({ drain: '300ms' });
    const { slow, stopped } = await begun();
    slow.catch(() => undefined);
    expect(await stopped).toBe(false);
    await expect(slow).rejects.toThrow(/fetch failed/);
    await expect(ask('/healthz')).rejects.toThrow(/fetch failed/);
  });
});

test('a host without work in progress stops at once, whatever connections are open', async () => {
  await start();
  const idle = new RawClient(Number(new URL(host.url).port));
  idle.write('GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await idle.until(/"live":true/);
  const listening = new RawClient(Number(new URL(host.url).port));
  listening.write('GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await listening.until(/retry/);
  expect(await host.stop()).toBe(true);
  await Promise.all([idle.closed, listening.closed]);
});

/** Connects, sends and counts what comes back, in a thread: it goes on while the host's own is held. */
const burst = `
import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
const { port, clients, sent } = workerData;
const flag = new Int32Array(sent);
let left = clients;
const told = () => { if (Atomics.add(flag, 0, 1) + 1 === clients) Atomics.notify(flag, 0); };
for (let client = 0; client < clients; client++) {
  const socket = connect({ port, host: '127.0.0.1' });
  let text = '';
  socket.setEncoding('latin1').on('data', (data) => (text += data)).on('error', (error) => (text += error.code));
  socket.on('close', () => { parentPort.postMessage(text); if (--left === 0) parentPort.close(); });
  socket.write('GET /v2/health/live HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n', told);
}
`;

test.each([1, 2, 50, 400])(
  '%d clients that have connected and sent are answered by a host that stops at once',
  async (clients) => {
    await start();
    const sent = new SharedArrayBuffer(4);
    const workerData = { port: Number(new URL(host.url).port), clients, sent };
    const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(burst)}`), { workerData });
    const answers: string[] = [];
    thread.on('message', (text: string) => answers.push(text));
    const ended = once(thread, 'exit');
    // The system makes the connections and takes the requests; the host, in this thread, sees none of them before it stops.
    const flag = new Int32Array(sent);
    for (let count = 0; count < clients; count = Atomics.load(flag, 0)) Atomics.wait(flag, 0, count, 1000);
    expect(await host.stop()).toBe(true);
    await ended;
    expect(answers).toHaveLength(clients);
    expect(answers.filter((text) => !/^HTTP\/1\.1 200 [\s\S]*"live":true/.test(text))).toEqual([]);
  },
);
