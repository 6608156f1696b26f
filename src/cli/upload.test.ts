import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Busboy, type BusboyHeaders } from '@fastify/busboy';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { contentTypeOf } from './call.ts';
import { nestSettings } from './publish.ts';
import { parsePairs } from './values.ts';
import { multipartBody, rawBody, upload, type UploadFile } from './upload.ts';

let dir: string;
let server: Server;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-upload-'));
});

afterEach(() => {
  server?.close();
  server?.closeAllConnections();
  rmSync(dir, { recursive: true, force: true });
});

async function listen(answer: (request: IncomingMessage, response: ServerResponse) => void, event = 'request') {
  server = createServer();
  server.on(event, answer);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, apiKey: 'a-key-of-mine' };
}

function file(name: string, bytes: Uint8Array): UploadFile {
  const path = join(dir, name);
  writeFileSync(path, bytes);
  return { name, path, bytes: bytes.byteLength };
}

const noProgress = (): void => undefined;

describe('an upload', () => {
  test('an upload arrives as it is, with its length, the key, and progress up to the last byte', async () => {
    const bytes = Buffer.alloc(300_000, 'weights');
    const seen: { headers?: IncomingMessage['headers']; body?: Buffer } = {};
    const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      seen.headers = request.headers;
      seen.body = await buffer(request);
      response.writeHead(201).end('{"version":"1"}');
    };
    const host = await listen((request, response) => void answer(request, response));
    const progress: number[] = [];
    const reply = await upload(host, '/functions/x', rawBody(file('model.onnx', bytes)), (sent) => progress.push(sent));
    expect(reply).toEqual({ status: 201, body: '{"version":"1"}' });
    expect(seen.body?.equals(bytes)).toBe(true);
    expect(seen.headers).toMatchObject({
      'content-length': '300000',
      authorization: 'Bearer a-key-of-mine',
      expect: '100-continue',
    });
    expect(progress.at(-1)).toBe(300_000);
    expect(progress).toEqual([...progress].sort((a, b) => a - b));
  });

  test('an upload sends no byte when the host refuses it at once', async () => {
    const received: Buffer[] = [];
    const host = await listen((request, response) => {
      request.on('data', (chunk: Buffer) => received.push(chunk));
      response.writeHead(403, { connection: 'close' }).end('{"error":"the key is wrong"}');
    }, 'checkContinue');
    const sent = upload(host, '/functions/x', rawBody(file('model.onnx', Buffer.alloc(100_000))), noProgress);
    await expect(sent).rejects.toThrow('the key is wrong (the key is taken from TURNTABLE_API_KEY) [HTTP 403]');
    expect(received).toEqual([]);
  });

  test('an upload reports the reason of the host, not the broken connection, when it is refused half-way', async () => {
    const host = await listen((request, response) => {
      request.once('data', () => {
        response.writeHead(413, { connection: 'close' }).end('{"error":"the model is over the limit"}');
      });
    });
    const sent = upload(host, '/functions/x', rawBody(file('model.onnx', Buffer.alloc(8_000_000))), noProgress);
    await expect(sent).rejects.toThrow('the model is over the limit [HTTP 413]');
  });

  test('an upload says how to start a host when none listens', async () => {
    const host = await listen(() => undefined);
    server.close();
    await once(server, 'close');
    const sent = upload(host, '/functions/x', rawBody(file('model.onnx', Buffer.alloc(1))), noProgress);
    await expect(sent).rejects.toThrow(/^no host answers at http:.*'turntable serve'.*--url$/);
  });
});

test('a server reads settings, model and further files under their names from the form', async () => {
  const bytes = fc.uint8Array({ maxLength: 5000 });
  await fc.assert(
    fc.asyncProperty(bytes, bytes, fc.dictionary(fc.string(), fc.string()), async (model, data, settings) => {
      const name = 'weights "1" é.data';
      const body = multipartBody([file('model.onnx', model), { ...file('weights', data), name }], settings);
      const chunks: Uint8Array[] = [];
      for await (const chunk of body.chunks()) chunks.push(chunk);
      const form = Buffer.concat(chunks);
      expect(form.byteLength).toBe(body.bytes);

      const parts = new Map<string, { filename: string | undefined; content: Buffer }>();
      const headers: BusboyHeaders = { 'content-type': body.contentType };
      const parser = new Busboy({ headers });
      const reading: Promise<void>[] = [];
      parser.on('field', (field, value) => parts.set(field, { filename: undefined, content: Buffer.from(value) }));
      parser.on('file', (field, stream, filename) => {
        reading.push(buffer(stream).then((content) => void parts.set(field, { filename, content })));
      });
      parser.end(form);
      await once(parser, 'finish');
      await Promise.all(reading);
      expect(JSON.parse(String(parts.get('settings')?.content))).toEqual({ ...settings });
      expect(parts.get('model')?.content.equals(model)).toBe(true);
      expect(parts.get('file')?.content.equals(data)).toBe(true);
      expect(parts.get('file')?.filename).toBe('weights %221%22 é.data');
    }),
    { numRuns: 25 },
  );
});

test('settings nest at their dots, as function.json has them', () => {
  const settings = parsePairs(
    ['slo=100ms', 'batching.max=8', 'batching.delay=2ms', 'pinned=true', 'version=03', 'x='],
    '--set',
    'slo=250ms',
  );
  expect(nestSettings(settings)).toEqual({
    slo: '100ms',
    batching: { max: '8', delay: '2ms' },
    pinned: 'true',
    version: '03',
    x: '',
  });
});

test('a setting named __proto__ changes no prototype', () => {
  const nested = nestSettings(parsePairs(['__proto__.polluted=true', 'constructor=1'], '--set', 'slo=250ms'));
  expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  expect(Object.keys(nested)).toEqual(['__proto__', 'constructor']);
});

test('a setting and a part of it cannot both be given', () => {
  expect(() => nestSettings(parsePairs(['cpu=1', 'cpu.threads=2'], '--set', 'slo=250ms'))).toThrow(
    '--set names both "cpu" and a part of it',
  );
});

test.each([
  ['{"input": [1]}', undefined, 'application/json'],
  ['[1, 2', undefined, 'text/plain; charset=utf-8'],
  ['Où est la bibliothèque ?', undefined, 'text/plain; charset=utf-8'],
  ['{"a": 1}', 'body.json', 'application/json'],
  ['P5 28 28', 'digit.pgm', 'application/octet-stream'],
  ['{"a": 1}', '-', 'application/json'],
])('the body %j from the file %s is sent as %s', (body, path, type) => {
  expect(contentTypeOf(Buffer.from(body), path)).toBe(type);
});
