/** A live host whose disk, folders, handlers and neighbours misbehave. */
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { SmallDisk } from '../../bench/chaos/disk.ts';
import { busyGraph, sumGraph, sumModel } from '../../bench/chaos/models.ts';
import { serializeModel, writeModel } from '../../src/onnx/index.ts';
import { serve, type ServingHost } from '../cli/command.ts';

const handler = `import type { HandlerCall } from 'turntable';

interface Question {
  readonly words: readonly string[];
}

function look(question: Question): number {
  throw new Error('no such word');
}

export function preprocess(request: HandlerCall): unknown {
  return look(request.json() as Question);
}

export const postprocess = (): unknown => ({});
`;
const lineOfThrow = handler.split('\n').findIndex((line) => line.includes('throw')) + 1;

let folder: string;
let functions: string;
let host: ServingHost;

async function addFunction(name: string, settings: object = {}): Promise<void> {
  await mkdir(join(functions, name), { recursive: true });
  await writeModel(sumGraph(1).build(), join(functions, name, 'model.onnx'));
  await writeFile(join(functions, name, 'function.json'), JSON.stringify(settings));
}

const serveFrom = async (data: string): Promise<ServingHost> =>
  await serve(['--functions', functions, '--data', data, '--gpu-use', 'off', '--cpu-cores', '1']);

const call = async (name: string, at = host): Promise<{ status: number; answer: string }> => {
  const response = await fetch(`${at.url}/function/${name}`, { method: 'POST', body: '{"input":[[1]]}' });
  return { status: response.status, answer: await response.text() };
};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-misfortunes-'));
  functions = join(folder, 'functions');
  await addFunction('sum');
  await addFunction('vanishing');
  await addFunction('throwing', { handler: 'handler.ts' });
  await writeFile(join(functions, 'throwing', 'handler.ts'), handler);
  host = await serveFrom(join(folder, 'data'));
});
afterAll(async () => {
  await host.end('SIGKILL');
  await rm(folder, { recursive: true, force: true });
});

const backlogMax = Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8'));

/** How many connections wait to be accepted at a port of this machine. */
function waitingAt(port: number): number {
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n');
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  const line = lines.find((each) => /^ *\d+: \w+:(\w+) \w+:0000 0A /.exec(each)?.[1] === hex);
  return parseInt(/ 0A \w+:(\w+) /.exec(line ?? '')?.[1] ?? '', 16);
}

test.skipIf(backlogMax < 1024)('a thousand clients that connect while the host is stopped are accepted', async () => {
  const { port } = new URL(host.url);
  host.child.kill('SIGSTOP');
  const sockets = Array.from({ length: 1000 }, () => connect(Number(port), '127.0.0.1'));
  try {
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    // More than Linux may queue would get a second of delay, or a reset. The last step of a connection reaches the queue
    // after its client knows that it is connected.
    await expect.poll(() => waitingAt(Number(port))).toBeGreaterThanOrEqual(sockets.length);
  } finally {
    host.child.kill('SIGCONT');
  }
  const answers = sockets.map(async (socket) => {
    socket.write('GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
    return (await text(socket)).split('\r\n', 1)[0];
  });
  expect([...new Set(await Promise.all(answers))]).toEqual(['HTTP/1.1 200 OK']);
});

test("the log of a handler's exception has the line of its source, and the client gets no path", async () => {
  const { status, answer } = await call('throwing');
  expect({ status, answer: JSON.parse(answer) as unknown }).toEqual({
    status: 500,
    answer: { error: "the handler's preprocess failed: no such word" },
  });
  await expect.poll(() => host.stderr()).toMatch(new RegExp(`at look \\(.*handler\\.ts:${lineOfThrow}:\\d+\\)`));
});

test('a model folder deleted while it serves is not named to the client', async () => {
  expect((await call('vanishing')).status).toBe(200);
  await rm(join(functions, 'vanishing'), { recursive: true });
  // Unload, so that the next call has to load the deleted files.
  await fetch(`${host.url}/v2/repository/models/vanishing/unload`, { method: 'POST' });
  const load = await fetch(`${host.url}/v2/repository/models/vanishing/load`, { method: 'POST' });
  const told = [await load.text(), (await call('vanishing')).answer];
  expect(load.status).toBeGreaterThanOrEqual(400);
  for (const each of told) expect(each).not.toContain(folder);
  expect((await call('sum')).status).toBe(200);
});

describe('without keys, a web page of another origin cannot call a function in any way', () => {
  const ways = ['/function/sum', '/v2/models/sum/infer', '/async-function/sum', '/v2/repository/models/sum/load'];
  test.each(
    ways.flatMap((path) => [
      [path, 'Host: evil.example'],
      [path, 'Host: 127.0.0.1\r\nOrigin: http://evil.example'],
    ]),
  )('%s with %s', async (path, headers) => {
    const socket = connect(Number(new URL(host.url).port), '127.0.0.1');
    socket.write(
      `POST ${path} HTTP/1.1\r\n${headers}\r\nConnection: close\r\nContent-Length: 15\r\n\r\n{"input":[[1]]}`,
    );
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 403 /);
  });
});

/** Mounting needs root. Otherwise the disk cannot be filled, or made read-only. */
const diskFolder = await mkdtemp(join(tmpdir(), 'turntable-disk-'));
const disk = await SmallDisk.mount(diskFolder, 32);

describe.skipIf(disk === undefined)('with a data folder on a disk of its own', () => {
  /** One for all tests, each of which leaves it running. */
  let kept: ServingHost;
  const restart = async (signal: 'SIGKILL' | 'SIGTERM'): Promise<void> => {
    await kept.end(signal);
    kept = await serveFrom(join(disk!.folder, 'data'));
  };

  beforeAll(async () => void (kept = await serveFrom(join(disk!.folder, 'data'))));
  afterEach(async () => {
    await disk!.setWritable(true);
    await disk!.empty();
  });
  afterAll(async () => {
    await kept?.end('SIGKILL');
    await disk?.[Symbol.asyncDispose]();
    await rm(diskFolder, { recursive: true, force: true });
  });

  test.each([
    ['killed', 'SIGKILL'],
    ['told to end', 'SIGTERM'],
  ] as const)('that is full when a host that was %s starts again, the host serves', async (_how, signal) => {
    await disk!.fill();
    await restart(signal);
    expect((await call('sum', kept)).status).toBe(200);
    const publish = async (): Promise<Response> =>
      await fetch(`${kept.url}/functions/after-${signal.toLowerCase()}`, { method: 'PUT', body: sumModel(1) });
    const published = await publish();
    expect([published.status, published.headers.get('x-turntable-error')]).toEqual([507, 'disk-full']);
    await disk!.empty();
    expect((await publish()).status).toBe(201);
  });

  test('that is full, a function is changed and removed, which makes room', async () => {
    const name = `${kept.url}/functions/large`;
    const model = serializeModel(busyGraph({ rows: 4, width: 512, layers: 4 }).build());
    const published = await fetch(name, { method: 'PUT', body: model });
    expect(published.status).toBe(201);
    await disk!.fill();
    const changed = await fetch(name, { method: 'PATCH', body: JSON.stringify({ slo: '7s' }) });
    expect([changed.status, await changed.text()]).toEqual([200, expect.stringContaining('7s')]);
    const removed = await fetch(name, { method: 'DELETE' });
    expect([removed.status, await removed.text()]).toEqual([204, '']);
    expect((await fetch(name)).status).toBe(404);
    await restart('SIGKILL');
    expect((await fetch(`${kept.url}/functions/large`)).status).toBe(404);
  });

  test('that becomes read-only, calls go on, and publications get the reason', async () => {
    expect((await call('sum', kept)).status).toBe(200);
    await expect.poll(() => disk!.setWritable(false).then(() => 'read-only', String)).toBe('read-only');
    const published = await fetch(`${kept.url}/functions/new`, { method: 'PUT', body: sumModel(2) });
    expect([published.status, published.headers.get('x-turntable-error')]).toEqual([503, 'store-read-only']);
    expect(await published.text()).not.toContain(diskFolder);
    expect((await call('sum', kept)).status).toBe(200);
    await restart('SIGTERM');
    expect((await call('sum', kept)).status).toBe(200);
    await disk!.setWritable(true);
  });

  test('that is read-only when a host that was killed during its work starts again, the host serves', async () => {
    await kept.end('SIGKILL');
    const data = join(disk!.folder, 'data');
    await mkdir(join(data, 'staging', 'upload'));
    const left = [
      'staging/upload/model.onnx',
      'blobs/sha256/part',
      'blobs/put/part',
      'handlers/old.mjs',
      'validated/old.json',
    ];
    for (const path of left) await writeFile(join(data, path), '');
    await disk!.setWritable(false);
    await restart('SIGKILL');
    expect((await call('sum', kept)).status).toBe(200);
    await disk!.setWritable(true);
    await restart('SIGKILL');
    expect(left.filter((path) => existsSync(join(data, path)))).toEqual([]);
  });

  test('that is read-only and new, a host says so and ends', async () => {
    const data = join(disk!.folder, 'new');
    await mkdir(data);
    await disk!.setWritable(false);
    await expect(serveFrom(data)).rejects.toThrow(`the data folder ${data} is on a read-only disk`);
    await disk!.setWritable(true);
  });
});
