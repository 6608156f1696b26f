/** A client that reads slowly, on a real host: its answer is whole whatever becomes of the process that made it. */
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { anySizeGraph, requestOf } from '../../bench/http/body-sizes.ts';
import { serializeModel } from '../../src/onnx/index.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

let host: ReluHost;

beforeAll(async () => {
  host = await startReluHost([], {
    flags: { 'cpu.cores': '1' },
    prepare: async (functions) => {
      const folder = join(functions, 'echo');
      await mkdir(folder, { recursive: true });
      await writeFile(join(folder, 'model.onnx'), serializeModel(anySizeGraph().build()));
      await writeFile(join(folder, 'function.json'), JSON.stringify({ slo: '60s' }));
    },
  });
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

const path = '/v2/models/echo/infer';
const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

/** A connection on which the call's answer has begun to come, and of which no more is read. */
async function begun(bytes: number): Promise<{ readonly socket: Socket; readonly front: Buffer }> {
  const { headers, body } = requestOf(bytes, 'binary');
  const { hostname, port } = new URL(host.url);
  const socket = connect(Number(port), hostname);
  const lines = Object.entries({ ...headers, traceparent, Host: hostname, 'Content-Length': String(body.byteLength) });
  socket.write(`POST ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
  socket.write(body);
  await once(socket, 'readable');
  return { socket, front: socket.read() as Buffer };
}

/** Reads the rest of an answer, and compares it with what was sent. */
async function expectWhole({ socket, front }: Awaited<ReturnType<typeof begun>>, bytes: number): Promise<void> {
  const headEnd = front.indexOf('\r\n\r\n') + 4;
  const head = front.toString('latin1', 0, headEnd);
  const wanted = headEnd + Number(/\ncontent-length: *(\d+)/i.exec(head)![1]);
  const parts = [front];
  let got = front.byteLength;
  socket.on('data', (chunk: Buffer) => {
    parts.push(chunk);
    got += chunk.byteLength;
    if (got >= wanted) socket.end();
  });
  await once(socket, 'end');
  expect(got).toBe(wanted);
  expect(Buffer.compare(Buffer.concat(parts).subarray(-bytes), requestOf(bytes, 'binary').body.subarray(-bytes))).toBe(
    0,
  );
}

const pidIn = (timing: string): number => Number(/process (\d+)/.exec(timing)?.[1]);

test.each([602_112, 4_000_000, 20_000_000])(
  'an answer of %i bytes comes whole to a client that reads it when its process was killed and another serves',
  async (bytes) => {
    const { socket, front } = await begun(bytes);
    const headEnd = front.indexOf('\r\n\r\n') + 4;
    const head = front.toString('latin1', 0, headEnd);
    expect(head).toContain('HTTP/1.1 200');
    const pid = pidIn(head);
    process.kill(pid, 'SIGKILL');
    const { headers, body } = requestOf(4096, 'binary');
    const others: number[] = [];
    // Its own calls may find the process gone, and are tried once more.
    while (others.at(-1) === undefined || others.at(-1) === pid) {
      const reply = await fetch(host.url + path, {
        method: 'POST',
        headers: { ...headers, traceparent },
        body: new Uint8Array(body),
      });
      expect(reply.status).toBe(200);
      expect(Buffer.from(await reply.arrayBuffer()).subarray(-4096)).toEqual(body.subarray(-4096));
      others.push(pidIn(reply.headers.get('server-timing') ?? ''));
    }
    await expectWhole({ socket, front }, bytes);
  },
);

test.each([602_112, 1_500_000, 4_000_000])(
  'an answer of %i bytes comes whole to a client that reads it when its process has answered others',
  async (bytes) => {
    const slow = await Promise.all(Array.from({ length: 4 }, async () => await begun(bytes)));
    const { headers, body } = requestOf(bytes, 'binary');
    const zeros = Buffer.from(body).fill(0, body.byteLength - bytes);
    for (let call = 0; call < 8; call++) {
      const reply = await fetch(host.url + path, { method: 'POST', headers, body: new Uint8Array(zeros) });
      expect(Buffer.from(await reply.arrayBuffer()).subarray(-bytes)).toEqual(zeros.subarray(-bytes));
    }
    for (const each of slow) await expectWhole(each, bytes);
  },
);
