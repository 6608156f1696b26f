/** Streams that are reset as they are opened, and replies at the pace of their readers. */
import { once } from 'node:events';
import {
  connect,
  constants,
  createServer,
  type ClientHttp2Stream,
  type ServerHttp2Stream,
  type Settings,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { free } from '../../tensor/index.ts';
import { Connections } from '../limits/connections.ts';
import { InFlightBytes } from '../limits/in-flight.ts';
import { Watches } from '../limits/watches.ts';
import type { GrpcContext } from './call.ts';
import { countStreams, keepPace } from './guard.ts';

/** Sends one reply over HTTP/2; the bytes that its reader got in the end, and whether the whole reply was written. */
async function sent(
  reply: Buffer,
  timeoutMs: number,
  read: (stream: ClientHttp2Stream) => void,
  settings: Settings = {},
) {
  const server = createServer();
  const watches = new Watches(timeoutMs);
  let isWritten = false;
  server.on('stream', (stream: ServerHttp2Stream) => {
    stream.on('error', () => undefined);
    stream.respond({ ':status': 200 });
    const own = Buffer.from(Uint8Array.from(reply).buffer);
    keepPace(stream, timeoutMs, watches, () => free(own.buffer));
    stream.write(own, (error) => {
      isWritten = (error ?? undefined) === undefined;
      if (isWritten) stream.end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { settings });
  const stream = session.request({ ':path': '/' });
  stream.on('error', () => undefined);
  const pieces: Buffer[] = [];
  stream.on('data', (piece: Buffer) => pieces.push(piece));
  read(stream);
  await once(stream, 'close');
  session.destroy();
  watches.close();
  server.close();
  return { bytes: Buffer.concat(pieces), isWritten };
}

/** How many streams of `sessions` connections reach the library, if each opens so many and resets those that it is to. */
async function handled(sessions: number, streams: number, isReset: (at: number) => boolean) {
  let count = 0;
  const library = {
    _streamHandler: (_interceptors: unknown, stream: ServerHttp2Stream) => {
      count++;
      stream.on('error', () => undefined);
      if (stream.writable) stream.respond({ ':status': 200 }, { endStream: true });
    },
  };
  const connections = new Connections({
    max: 100,
    filesMax: undefined,
    trustedProxies: [],
    warn: () => undefined,
  });
  const failures: string[] = [];
  const statistics = { failed: ({ code }: { readonly code: string }) => void failures.push(code) };
  const context = { connections, inFlight: new InFlightBytes(2 ** 30), statistics } as unknown as GrpcContext;
  countStreams(library as never, context);
  const server = createServer();
  server.on('session', (session) => session.on('error', () => undefined));
  server.on('stream', (...args) => (library._streamHandler as (...all: unknown[]) => void)([], ...args));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  let answered = 0;
  for (let at = 0; at < sessions; at++) {
    const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    session.on('error', () => undefined);
    const opened = Array.from({ length: streams }, (_, stream) => {
      const one = session.request({ ':method': 'POST', ':path': '/' });
      one.on('error', () => undefined).on('response', () => answered++);
      one.resume();
      if (isReset(stream)) one.close(constants.NGHTTP2_CANCEL);
      else one.end();
      return new Promise((resolve) => one.once('close', resolve));
    });
    await Promise.all(opened);
    session.destroy();
  }
  server.close();
  return { count, answered, failures, refusals: connections.refusals.resets };
}

test('a flood of streams that are reset at once costs a hundred of them a second, however many connections bring it', async () => {
  const startMs = performance.now();
  const { count, failures, refusals } = await handled(20, 500, () => true);
  // The time gives a hundred back each second, and each look at a connection may leave one uncounted.
  const seconds = Math.ceil((performance.now() - startMs) / 1000);
  expect(count).toBeLessThan(100 * (1 + seconds) + 20 * 10);
  expect(refusals).toBeGreaterThan(10);
  expect(new Set(failures)).toEqual(new Set(['too-many-requests']));
});

test('calls that are given up now and then cost no connection', async () => {
  const { count, answered, refusals } = await handled(1, 500, (at) => at % 10 === 0);
  // Node's client does not even open a stream that is reset before it has a connection.
  expect(count).toBeGreaterThanOrEqual(450);
  expect(answered).toBe(450);
  expect(refusals).toBe(0);
});

/** No two places that could be confused have the same bytes. */
const reply = Buffer.from(Uint32Array.from({ length: 1_000_003 }, (_, index) => index * 2_654_435_761).buffer);

test.each([0, 1, 65_535, 65_536, 262_144, 262_145, reply.byteLength])(
  'a reply of %i bytes arrives whole',
  async (length) => {
    const { bytes, isWritten } = await sent(reply.subarray(0, length), 3_600_000, () => undefined);
    expect(isWritten).toBe(true);
    expect(bytes.equals(reply.subarray(0, length))).toBe(true);
  },
);

test('a reader that takes some bytes again and again, and too few of them, is cut off', async () => {
  const { bytes, isWritten } = await sent(reply, 150, (stream) => {
    stream.on('data', () => {
      stream.pause();
      setTimeout(() => stream.resume(), 75);
    });
  });
  expect(isWritten).toBe(false);
  expect(bytes.byteLength).toBeLessThan(reply.byteLength);
});

test('a reader that takes nothing is cut off', async () => {
  const { isWritten } = await sent(reply, 100, (stream) => void stream.pause());
  expect(isWritten).toBe(false);
});

test('a reader whose window has no room for a reply of a few bytes is cut off', async () => {
  const { bytes } = await sent(reply.subarray(0, 100), 100, () => undefined, { initialWindowSize: 0 });
  expect(bytes.byteLength).toBe(0);
});
