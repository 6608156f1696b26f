/** Connections beyond the limit: of one address, and of all. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { startTestHost, type TestHost } from './test-host.ts';

let host: TestHost | undefined;
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await host?.[Symbol.asyncDispose]();
});

async function open(localAddress: string): Promise<Socket> {
  const socket = connect({ port: host!.server.port, host: '127.0.0.1', localAddress });
  sockets.push(socket);
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

async function ask(socket: Socket, path = '/v2', header = ''): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${header}\r\n`);
  let text = '';
  for await (const chunk of socket) {
    text += String(chunk);
    if (/\r\n\r\n[\s\S]/.test(text)) break;
  }
  return text;
}

/** The status of a reply to a proxy, for its client. */
async function status(peer: string, client: string): Promise<string> {
  const socket = await open(peer);
  const reply = await ask(socket, '/v2/models', `X-Forwarded-For: ${client}\r\n`);
  socket.destroy();
  return reply.slice(9, 12);
}

/** The same, of a stream of events that stays open. */
async function listen(client: string): Promise<string> {
  return (await ask(await open('127.0.0.2'), '/api/events', `X-Forwarded-For: ${client}\r\n`)).slice(9, 12);
}

// Linux has all of 127.0.0.0/8.
describe.skipIf(process.platform !== 'linux')('with six connections at most', () => {
  test('an address has three, all have six, and a request on another is 503 with the reason', async () => {
    host = await startTestHost({ config: { limits: { connectionsMax: 6 } } });
    for (let count = 0; count < 3; count++) await open('127.0.0.2');
    const fourth = await ask(await open('127.0.0.2'));
    expect(fourth).toMatch(/^HTTP\/1\.1 503 [\s\S]*X-Turntable-Error: too-many-connections\r\nRetry-After: 1\r\n/);
    expect(fourth).toContain('3 connections of this address are open, half of this');
    for (let count = 0; count < 2; count++) await open('127.0.0.3');
    const last = await open('127.0.0.4');
    expect(await ask(await open('127.0.0.5'))).toContain('6 connections are open, which is this');
    // One that asks nothing is closed as well.
    const idle = await open('127.0.0.5');
    idle.resume();
    await once(idle, 'close');
    last.destroy();
    await expect.poll(async () => (await ask(await open('127.0.0.5'))).slice(9, 12)).toBe('200');
    expect(host.log.filter(({ msg }) => String(msg).startsWith('connections are refused'))).toHaveLength(1);
  });

  test('behind a trusted proxy the limits go by its clients, and a client in front of it cannot make up another', async () => {
    const limits = { connectionsMax: 4 };
    const rate = { perKey: 0, perAddress: 1 };
    host = await startTestHost({ config: { trustedProxies: ['127.0.0.2'], rate, limits } });
    expect(await status('127.0.0.2', '192.0.2.1')).toBe('200');
    expect(await status('127.0.0.2', '198.51.100.7, 192.0.2.1')).toBe('429');
    expect(await status('127.0.0.2', '192.0.2.2')).toBe('200');
    expect(await status('127.0.0.3', '192.0.2.3')).toBe('200');
    expect(await status('127.0.0.3', '192.0.2.4')).toBe('429');
    // A listener holds the proxy's connection for its client.
    expect([await listen('192.0.2.11'), await listen('192.0.2.12'), await listen('192.0.2.13')]).toEqual([
      '200',
      '200',
      '200',
    ]);
  });

  test('a flood of idle ones from one address leaves room for others, and for itself once they are gone', async () => {
    host = await startTestHost({ config: { limits: { connectionsMax: 40 } } });
    const flood = await Promise.all(Array.from({ length: 200 }, () => open('127.0.0.2')));
    expect((await ask(await open('127.0.0.3'))).slice(9, 12)).toBe('200');
    for (const socket of flood) socket.destroy();
    await expect.poll(async () => (await ask(await open('127.0.0.2'))).slice(9, 12)).toBe('200');
  });
});
