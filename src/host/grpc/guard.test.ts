/** Replies at the pace of their readers. */
import { once } from 'node:events';
import { connect, createServer, type ClientHttp2Stream, type ServerHttp2Stream, type Settings } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { free } from '../../tensor/index.ts';
import { Watches } from '../limits/watches.ts';
import { keepPace } from './guard.ts';

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
