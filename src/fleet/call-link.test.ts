/** Connections for calls between hosts, over real sockets. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import type { Message } from '../tensor/index.ts';
import { CallClient, CallLink } from './call-link.ts';
import { Seal } from './seal.ts';

const none = Buffer.alloc(0);
const [authorization, nonce] = ['Turntable-Fleet one signed', 'drawn'];
const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** Two ends of a connection; `change` is applied to each chunk on its way to the serving host. */
async function connected(
  change: (chunk: Buffer) => Buffer[] = (chunk) => [chunk],
  secret = 'a secret',
): Promise<{ client: CallClient; seen: Message<object>[]; server: Promise<Error> }> {
  const seen: Message<object>[] = [];
  const accepted = createServer().listen(0, '127.0.0.1');
  const between = createServer().listen(0, '127.0.0.1');
  closing.push(() => accepted.close());
  closing.push(() => between.close());
  const portOf = (server: typeof accepted): number => (server.address() as AddressInfo).port;
  await Promise.all([accepted, between].map(async (server) => await once(server, 'listening')));
  between.on('connection', (from: Socket) => {
    const to = connect(portOf(accepted), '127.0.0.1');
    from.on('data', (chunk) => {
      for (const part of change(chunk)) to.write(part);
    });
    to.pipe(from);
    from.once('close', () => to.destroy());
    from.on('error', () => to.destroy());
    to.on('error', () => from.destroy());
  });
  const server = new Promise<Error>((ended) => {
    accepted.on('connection', (socket: Socket) => {
      const link: CallLink = new CallLink(
        socket,
        none,
        new Seal('lab', secret).linkSeals('server', authorization, nonce),
        {
          message: (message) => {
            seen.push(message);
            link.send({ header: { answered: seen.length }, tensors: message.tensors });
          },
          ended,
        },
      );
      closing.push(() => socket.destroy());
    });
  });
  const socket = connect(portOf(between), '127.0.0.1');
  await once(socket, 'connect');
  closing.push(() => socket.destroy());
  return {
    client: new CallClient(socket, none, new Seal('lab', 'a secret').linkSeals('client', authorization, nonce)),
    seen,
    server,
  };
}

const call = (bytes: number): Message<object> => ({
  header: { name: 'f' },
  tensors: [{ name: 'x', datatype: 'UINT8', shape: [bytes], data: Buffer.alloc(bytes, 7) }],
});

test('calls are answered one after the other on one connection, small ones and large ones', async () => {
  const { client, seen } = await connected();
  for (const [index, bytes] of [3, 3_000_000, 0].entries()) {
    const { header, tensors } = await client.ask(call(bytes), undefined);
    expect(header).toEqual({ answered: index + 1 });
    expect(Buffer.from(tensors[0]!.data).equals(Buffer.alloc(bytes, 7))).toBe(true);
  }
  expect(seen).toHaveLength(3);
  expect(client.isUp).toBe(true);
});

test('a frame that was changed on its way is refused, and its call fails', async () => {
  const { client, seen, server } = await connected((chunk) => {
    const changed = Buffer.from(chunk);
    const at = changed.indexOf('"name":"f"');
    if (at !== -1) changed.write('"name":"g"', at);
    return [changed];
  });
  await expect(client.ask(call(3), undefined)).rejects.toThrow('the connection was closed');
  expect((await server).message).toBe('a frame was not sealed by the other host');
  expect(seen).toEqual([]);
  expect(client.isUp).toBe(false);
});

test('a replayed frame is refused', async () => {
  const { client, seen, server } = await connected((chunk) => [chunk, chunk]);
  await client.ask(call(3), undefined).catch(() => undefined);
  expect((await server).message).toBe('a frame was not sealed by the other host');
  expect(seen.length).toBeLessThan(2);
});

test('an answer of a host with another secret is refused', async () => {
  const { client, seen } = await connected(undefined, 'another secret');
  await expect(client.ask(call(3), undefined)).rejects.toThrow(/closed|ECONNRESET|EPIPE/);
  expect(seen).toEqual([]);
});

test('a caller that is gone ends the connection of its call; the next call of it is refused', async () => {
  const gone = new AbortController();
  const { client, server } = await connected(() => []);
  const asked = client.ask(call(3), gone.signal);
  gone.abort();
  await expect(asked).rejects.toThrow('the client is gone');
  await server;
  await expect(client.ask(call(3), undefined)).rejects.toThrow('the connection was closed');
});
