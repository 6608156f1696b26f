/** What gRPC refuses before a handler sees it: keys, bytes, slow bodies and messages that are no protobuf. */
import { once } from 'node:events';
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { gzipSync } from 'node:zlib';
import { status } from '@grpc/grpc-js';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

const key = 'a-key-for-tests';
const infer = 'inference.GRPCInferenceService/ModelInfer';
const streamInfer = 'inference.GRPCInferenceService/ModelStreamInfer';
const mebibyte = 2 ** 20;

interface Answered {
  readonly code: number;
  readonly message: string;
}

let sessions: ClientHttp2Session[] = [];
afterEach(() => {
  for (const session of sessions) session.destroy();
  sessions = [];
});

function sessionTo(host: ReluHost, localAddress = '127.0.0.1'): ClientHttp2Session {
  const session = connect(`http://127.0.0.1:${host.grpcPort}`, { localAddress } as object);
  session.on('error', () => undefined);
  sessions.push(session);
  return session;
}

function begin(session: ClientHttp2Session, path: string, headers: Record<string, string> = {}): ClientHttp2Stream {
  const fixed = { ':method': 'POST', ':path': `/${path}`, 'content-type': 'application/grpc', te: 'trailers' };
  const stream = session.request({ ...fixed, ...headers });
  stream.on('error', () => undefined);
  return stream;
}

async function answerTo(stream: ClientHttp2Stream): Promise<Answered> {
  let found: Record<string, unknown> = {};
  const take = (headers: Record<string, unknown>): void => void (found = { ...found, ...headers });
  stream.on('response', take).on('trailers', take);
  stream.resume();
  await once(stream, 'close');
  return { code: Number(found['grpc-status']), message: decodeURIComponent(String(found['grpc-message'])) };
}

function framed(message: Uint8Array, flag = 0, announced = message.byteLength): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flag);
  head.writeUInt32BE(announced, 1);
  return Buffer.concat([head, message]);
}

const authorized = { authorization: `Bearer ${key}` };

describe('with keys for calls', () => {
  let host: ReluHost;
  beforeAll(async () => {
    host = await startReluHost(['relu'], {
      apiKeys: [key],
      flags: {
        'grpc.port': '0',
        apiKeysFor: 'invoke,publish,read',
        'limits.body': '2MiB',
        'limits.inFlight': '4MiB',
        'limits.connections': '200',
      },
    });
  });
  afterAll(async () => {
    await host?.[Symbol.asyncDispose]();
  });

  async function send(path: string, bytes: readonly Buffer[], headers: Record<string, string> = authorized) {
    const stream = begin(sessionTo(host), path, headers);
    const answered = answerTo(stream);
    for (const each of bytes) stream.write(each);
    stream.end();
    return await answered;
  }

  test.each([infer, streamInfer])('a call of %s without a key is refused before its message', async (path) => {
    const stream = begin(sessionTo(host), path);
    stream.write(framed(Buffer.alloc(0), 0, mebibyte));
    expect(await answerTo(stream)).toMatchObject({ code: status.UNAUTHENTICATED });
  });

  test('a stream for an unknown method is closed with its answer, though its client sends on', async () => {
    const stream = begin(sessionTo(host), 'inference.GRPCInferenceService/Nothing');
    stream.write(Buffer.alloc(60_000));
    expect(await answerTo(stream)).toMatchObject({ code: status.UNIMPLEMENTED });
  });

  test('streams and their metadata count, and one too many is refused before its method sees it', async () => {
    const session = sessionTo(host);
    const large = { ...authorized, 'x-large': 'a'.repeat(14_000) };
    // 4 MiB have room for 61 streams of 40 KiB with 28 KB of metadata.
    const streams = Array.from({ length: 61 }, () => begin(session, infer, large));
    const last = await answerTo(begin(session, infer, large));
    expect(last).toMatchObject({ code: status.RESOURCE_EXHAUSTED });
    for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
    await expect
      .poll(async () => (await send(infer, [framed(Buffer.alloc(0))], large)).code)
      .not.toBe(status.RESOURCE_EXHAUSTED);
  });

  test('messages that inflate to more than one may have, or all together may hold, are refused', async () => {
    const gzip = { ...authorized, 'grpc-encoding': 'gzip' };
    const tooLarge = await send(infer, [framed(gzipSync(Buffer.alloc(3 * mebibyte)), 1)], gzip);
    expect(tooLarge).toEqual({
      code: status.RESOURCE_EXHAUSTED,
      message: `an inflated message is over the limit of ${2 * mebibyte} bytes`,
    });
    // Well-formed but for its fields: 2 MiB of an unknown field.
    const filled = Buffer.concat([Buffer.from([0x9a, 0x06, 0x80, 0x80, 0x70]), Buffer.alloc(0x1c0000)]);
    const unknown = await send(infer, [framed(gzipSync(filled), 1)], gzip);
    expect(unknown).toMatchObject({ code: status.NOT_FOUND });
    const broken = await send(infer, [framed(Buffer.from('no gzip'), 1)], gzip);
    expect(broken).toMatchObject({ code: status.INVALID_ARGUMENT });
    expect(broken.message).toMatch(/^a message is not gzip data: /);
  });

  test('a largest message fits beside another: each counts once', async () => {
    const other = begin(sessionTo(host), infer, authorized);
    const first = framed(Buffer.alloc(1.7 * mebibyte), 0, 2 * mebibyte);
    await new Promise<void>((resolve) => void other.write(first, () => resolve()));
    // Well-formed but for its field, which is unknown.
    const filled = Buffer.concat([Buffer.from([0x9a, 0x06, 0xfa, 0xff, 0x7f]), Buffer.alloc(0x1ffffa)]);
    for (const message of [framed(filled), framed(gzipSync(filled), 1)]) {
      expect(await send(infer, [message], { ...authorized, 'grpc-encoding': 'gzip' })).toMatchObject({
        code: status.NOT_FOUND,
      });
    }
    other.close(constants.NGHTTP2_CANCEL);
  });

  test('a stream of many messages, plain and compressed in turn, is answered for each, and gives back what it held', async () => {
    const stream = begin(sessionTo(host), streamInfer, { ...authorized, 'grpc-encoding': 'gzip' });
    let replies = 0;
    const answered = answerTo(stream);
    const filled = Buffer.concat([Buffer.from([0x9a, 0x06, 0x80, 0x80, 0x20]), Buffer.alloc(0x080000)]);
    for (let count = 0; count < 20; count++) {
      const before = replies;
      stream.write(count % 2 === 0 ? framed(filled) : framed(gzipSync(filled), 1));
      while (replies === before) {
        await once(stream, 'data');
        replies++;
      }
    }
    stream.end();
    expect(await answered).toMatchObject({ code: status.OK });
  });

  test.each([
    // A field of type 7, a length beyond the end, a number that does not end.
    [infer, Buffer.from([0x0f])],
    ['inference.GRPCInferenceService/ModelMetadata', Buffer.from([0x0f])],
    [infer, Buffer.from([0x2a, 0x7f, 0x00])],
    [infer, Buffer.from([0x08, 0xff])],
    [streamInfer, Buffer.from([0x0f])],
    ['grpc.health.v1.Health/Check', Buffer.from([0x0f])],
    ['grpc.reflection.v1.ServerReflection/ServerReflectionInfo', Buffer.from([0x0f])],
  ])('a message to %s that is no protobuf is an invalid argument', async (path, bytes) => {
    const { code, message } = await send(path, [framed(bytes)]);
    expect(code).toBe(status.INVALID_ARGUMENT);
    expect(message).toContain('is not well-formed protobuf of its request type: ');
  });

  test.each(['inference.GRPCInferenceService/LogSettings', 'mmesh.ModelMesh/getModelStatus', 'no.Service/none'])(
    '%s, which is not there, is unimplemented',
    async (path) => {
      expect((await send(path, [framed(Buffer.alloc(0))])).code).toBe(status.UNIMPLEMENTED);
    },
  );

  // Linux has all of 127.0.0.0/8.
  test.skipIf(process.platform !== 'linux')('an address has half of all connections, and is told so', async () => {
    const flood = Array.from({ length: 110 }, () => sessionTo(host, '127.0.0.9'));
    await Promise.all(flood.slice(0, 100).map((session) => once(session, 'connect')));
    const last = sessionTo(host, '127.0.0.9');
    const goneAway = once(last, 'goaway');
    const reason = 'connections of this address are open, half of this host';
    const { code, message } = await answerTo(begin(last, 'inference.GRPCInferenceService/ServerLive').end());
    expect(code).toBe(status.RESOURCE_EXHAUSTED);
    expect(message).toContain(reason);
    const [goneCode, , details] = (await goneAway) as [number, number, Buffer];
    expect(goneCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    expect(details.toString()).toContain(reason);
    expect(await send('inference.GRPCInferenceService/ServerLive', [framed(Buffer.alloc(0))])).toMatchObject({
      code: 0,
    });
    const metrics = await (await fetch(`${host.url}/metrics`, { headers: authorized })).text();
    expect(metrics).toMatch(/^turntable_connections_refused_total\{reason="address"\} \d+$/m);
    expect(metrics).toMatch(/^turntable_connections_open\{door="grpc"\} \d{3}$/m);
  });

  test.skipIf(process.platform !== 'linux')(
    'a client that resets streams as it opens them loses its connection',
    async () => {
      const opened = 500;
      const flood = (): ClientHttp2Session => {
        const session = sessionTo(host, '127.0.0.10');
        for (let at = 0; at < opened; at++) {
          const stream = begin(session, infer, authorized);
          stream.write(framed(Buffer.alloc(10)));
          stream.close(constants.NGHTTP2_CANCEL);
        }
        return session;
      };
      for (let connection = 0; connection < 3; connection++) {
        const [code, , details] = (await once(flood(), 'goaway')) as [number, number, Buffer];
        expect(code).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
        expect(details.toString()).toMatch(/^this address has reset more than 100 streams in a second/);
      }
      const metrics = await (await fetch(`${host.url}/metrics`, { headers: authorized })).text();
      expect(metrics).toMatch(/^turntable_connections_refused_total\{reason="resets"\} 3$/m);
      expect(await send('inference.GRPCInferenceService/ServerLive', [framed(Buffer.alloc(0))])).toMatchObject({
        code: 0,
      });
    },
  );

  test('a flag that is neither 0 nor 1 is refused by name', async () => {
    expect(await send(infer, [framed(Buffer.alloc(0), 7)])).toEqual({
      code: status.INVALID_ARGUMENT,
      message: 'a message begins with the byte 7, which must be 0 or 1',
    });
  });

  test('no bytes are an internal error, however they are cut', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 40 }), fc.integer({ min: 1, max: 46 }), async (bytes, at) => {
        const whole = framed(bytes);
        const { code } = await send(infer, [whole.subarray(0, at), whole.subarray(at)]);
        expect([status.INVALID_ARGUMENT, status.NOT_FOUND]).toContain(code);
      }),
      { numRuns: 50 },
    );
  });
});

test('bodies that never end hold no more than the limit, and their memory serves others once they leave', async () => {
  await using host = await startReluHost(['relu'], {
    flags: { 'grpc.port': '0', 'limits.inFlight': '4MiB', 'limits.body': '2MiB' },
  });
  const streams = Array.from({ length: 8 }, () => begin(sessionTo(host), infer));
  const answers = streams.map((stream) => answerTo(stream));
  for (const stream of streams) stream.write(framed(Buffer.alloc(mebibyte), 0, mebibyte + 100_000));
  const first = await Promise.race(answers);
  expect(first.code).toBe(status.RESOURCE_EXHAUSTED);
  expect(first.message).toMatch(/^the requests in progress hold \d+ bytes; .* limit of 4194304$/);
  for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL);
  await Promise.all(answers);
  const filled = Buffer.concat([Buffer.from([0x9a, 0x06, 0x80, 0x80, 0x60]), Buffer.alloc(0x180000)]);
  // The host learns a moment later that the others have left.
  await expect
    .poll(async () => {
      const stream = begin(sessionTo(host), infer);
      stream.end(framed(filled));
      return (await answerTo(stream)).code;
    })
    .toBe(status.NOT_FOUND);
});

/** A body without a length that tells. */
const unannounced = (bytes: number): ReadableStream<Uint8Array> => new Blob([new Uint8Array(bytes)]).stream();

test('after inputs above the limit, over HTTP and gRPC again and again, nothing of them is held', async () => {
  await using host = await startReluHost(['relu'], {
    flags: { 'grpc.port': '0', 'gpu.use': 'off', 'limits.inFlight': '4MiB', 'limits.body': '2MiB' },
  });
  const post = async (body: RequestInit['body'], headers: Record<string, string> = {}): Promise<number> => {
    const init = { method: 'POST', body, headers, duplex: 'half' } as RequestInit;
    return await fetch(`${host.url}/v2/models/relu/infer`, init).then(
      async (reply) => {
        await reply.arrayBuffer();
        return reply.status;
      },
      // The host hangs up on a client that sends on.
      () => 0,
    );
  };
  const message = async (bytes: Buffer, headers: Record<string, string> = {}): Promise<number> => {
    const stream = begin(sessionTo(host), infer, headers);
    stream.end(bytes);
    return (await answerTo(stream)).code;
  };
  const packed = gzipSync(Buffer.alloc(40 * mebibyte));
  for (let round = 0; round < 4; round++) {
    const statuses = await Promise.all([
      post(Buffer.alloc(3 * mebibyte)),
      post(packed, { 'content-encoding': 'gzip' }),
      ...Array.from({ length: 6 }, () => post(unannounced(3 * mebibyte))),
    ]);
    for (const each of statuses) expect([0, 413, 429]).toContain(each);
    const codes = await Promise.all([
      message(framed(packed, 1), { 'grpc-encoding': 'gzip' }),
      message(framed(Buffer.alloc(0), 0, 3 * mebibyte)),
      ...Array.from({ length: 6 }, () => message(framed(Buffer.alloc(2 * mebibyte - 100)))),
    ]);
    for (const code of codes) expect([status.RESOURCE_EXHAUSTED, status.INVALID_ARGUMENT]).toContain(code);
  }
  await expect
    .poll(async () => {
      const metrics = await (await fetch(`${host.url}/metrics`)).text();
      return /^turntable_memory_used_bytes\{part="inFlight"\} (\d+)$/m.exec(metrics)?.[1];
    })
    .toBe('0');
  // As much as fits into the limit of a body is read again.
  const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, -2, 3, -4] }] });
  expect(await post(body.padEnd(1.9 * mebibyte))).toBe(200);
});

test.each([infer, streamInfer])('a message to %s that stops is refused when its time is over', async (path) => {
  await using host = await startReluHost(['relu'], { flags: { 'grpc.port': '0', 'limits.bodyTimeout': '300ms' } });
  const stream = begin(sessionTo(host), path);
  stream.write(framed(Buffer.alloc(1000), 0, mebibyte));
  const { code, message } = await answerTo(stream);
  expect(code).toBe(status.DEADLINE_EXCEEDED);
  expect(message).toMatch(/^the message came too slowly: \d+ bytes within /);
});
