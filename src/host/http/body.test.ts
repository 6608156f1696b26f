import { once } from 'node:events';
import { createServer, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { afterEach, expect, test, vi } from 'vitest';
import type { HostError } from '../errors.ts';
import { Gathering } from '../limits/gathering.ts';
import { Bodies } from './body.ts';
import type { Exchange } from './exchange.ts';

const mebibyte = 2 ** 20;
/** No two places that could be confused have the same bytes. */
const body = Buffer.from(
  Uint32Array.from({ length: (5 * mebibyte) / 4 + 99 }, (_, index) => index * 2_654_435_761).buffer,
);

afterEach(() => vi.restoreAllMocks());

/** A request whose body comes in pieces of this size. */
function exchangeOf(
  sent: Buffer,
  headers: Record<string, string>,
  pieceBytes: number,
): { exchange: Exchange; grown: number[] } {
  const incoming = Object.assign(new PassThrough(), { headers, complete: false });
  const grown: number[] = [];
  const send = (at: number): void => {
    incoming.write(sent.subarray(at, at + pieceBytes));
    if (at + pieceBytes < sent.byteLength) setImmediate(send, at + pieceBytes);
    else {
      incoming.complete = true;
      incoming.end();
    }
  };
  send(0);
  return {
    exchange: { incoming, outgoing: {}, held: { grow: (bytes: number) => grown.push(bytes) } } as unknown as Exchange,
    grown,
  };
}

test.each([
  ['of unknown length', body, {}],
  ['that is decompressed', gzipSync(body), { 'content-encoding': 'gzip' }],
])('a body %s is gathered in a small buffer, and then in one for all of it', async (_, sent, headers) => {
  const bodies = new Bodies({ timeoutMs: 3_600_000 });
  const allocated = vi.spyOn(Buffer, 'allocUnsafeSlow');
  const { exchange, grown } = exchangeOf(sent, headers, 60_001);
  expect((await bodies.read(exchange, 64 * mebibyte)).equals(body)).toBe(true);
  bodies.close();
  expect(grown.reduce((sum, bytes) => sum + bytes, 0)).toBe(body.byteLength);
  const sizes = allocated.mock.calls.map(([bytes]) => bytes).filter((bytes) => bytes > 64 * 1024);
  expect(sizes).toEqual([mebibyte, 64 * mebibyte]);
});

test('buffers that a decompressor has filled are freed as they are copied', async () => {
  const bodies = new Bodies({ timeoutMs: 3_600_000 });
  const added = vi.spyOn(Gathering.prototype, 'add');
  // Each piece that arrives becomes many.
  const zeros = Buffer.alloc(body.byteLength);
  const { exchange } = exchangeOf(gzipSync(zeros), { 'content-encoding': 'gzip' }, 1000);
  expect((await bodies.read(exchange, 64 * mebibyte)).equals(zeros)).toBe(true);
  bodies.close();
  const pieces = added.mock.calls.map(([piece]) => piece);
  expect(pieces.length).toBeGreaterThan(50);
  // One buffer is not full.
  expect(pieces.filter(({ byteLength }) => byteLength > 0).length).toBeLessThanOrEqual(2);
});

test('a body of known length is copied once, to its place', async () => {
  const bodies = new Bodies({ timeoutMs: 3_600_000 });
  const allocated = vi.spyOn(Buffer, 'allocUnsafeSlow');
  const { exchange } = exchangeOf(body, { 'content-length': String(body.byteLength) }, 60_001);
  expect((await bodies.read(exchange, 64 * mebibyte)).equals(body)).toBe(true);
  bodies.close();
  expect(allocated.mock.calls.map(([bytes]) => bytes).filter((bytes) => bytes > 64 * 1024)).toEqual([body.byteLength]);
});

test.each([
  ['of known length', [body]],
  ['of unknown length', Array.from({ length: 20 }, (_, at) => body.subarray(at * 250_000, (at + 1) * 250_000))],
])('Node goes on reading from the socket while a body %s comes', async (_, pieces) => {
  const bodies = new Bodies({ timeoutMs: 3_600_000 });
  let pauses = 0;
  const server = createServer((incoming, outgoing) => {
    const { _handle: handle } = incoming.socket as unknown as { _handle: { readStop: () => number } };
    const stop = handle.readStop.bind(handle);
    handle.readStop = () => {
      pauses++;
      return stop();
    };
    const exchange = { incoming, outgoing, held: { grow: () => undefined } } as unknown as Exchange;
    void bodies.read(exchange, 64 * mebibyte).then((whole) => outgoing.end(whole));
  }).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const isWhole = pieces.length === 1;
    const headers = isWhole ? { 'Content-Length': body.byteLength } : {};
    const sent = request({ port, method: 'POST', headers });
    for (const piece of pieces) sent.write(piece);
    sent.end();
    const [reply] = (await once(sent, 'response')) as [IncomingMessage];
    const answered = Buffer.concat(await reply.toArray());
    expect(answered.equals(Buffer.concat(pieces))).toBe(true);
    expect(pauses).toBe(0);
  } finally {
    bodies.close();
    server.close();
    server.closeAllConnections();
  }
});

test('each body has its own time limit, whichever others end or fail before it', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  try {
    const bodies = new Bodies({ timeoutMs: 1000 });
    const begin = (): { incoming: PassThrough & { complete: boolean }; ended: Promise<string> } => {
      const incoming = Object.assign(new PassThrough(), { headers: {}, complete: false });
      const exchange = { incoming, outgoing: {}, held: { grow: () => undefined } } as unknown as Exchange;
      const ended = bodies.read(exchange, mebibyte).then(
        (whole) => `${whole.byteLength} bytes`,
        (error: unknown) => (error as HostError).code,
      );
      return { incoming, ended };
    };
    const early = [begin(), begin(), begin()];
    vi.advanceTimersByTime(600);
    const late = [begin(), begin()];
    early[0]!.incoming.complete = true;
    early[0]!.incoming.end('abc');
    expect(await early[0]!.ended).toBe('3 bytes');
    vi.advanceTimersByTime(700);
    expect(await Promise.all([early[1]!.ended, early[2]!.ended])).toEqual(['body-timeout', 'body-timeout']);
    late[1]!.incoming.complete = true;
    late[1]!.incoming.end('abcd');
    expect(await late[1]!.ended).toBe('4 bytes');
    vi.advanceTimersByTime(600);
    expect(await late[0]!.ended).toBe('body-timeout');
    bodies.close();
  } finally {
    vi.useRealTimers();
  }
});
