/** Many clients that listen to events: a new one always gets in, at the cost of those that have the most. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
});
afterAll(() => host[Symbol.asyncDispose]());

async function listen(path: string, localAddress: string): Promise<{ socket: Socket; status: string }> {
  const socket = connect({ port: host.server.port, host: '127.0.0.1', localAddress });
  socket.on('error', () => undefined);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n`);
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  // It never reads again.
  socket.pause();
  return { socket, status: chunk.toString('latin1').slice(9, 12) };
}

// Linux has all of 127.0.0.0/8.
describe.skipIf(process.platform !== 'linux').each(['/api/events', '/functions/pair/log?follow=true'])('%s', (path) => {
  test('takes a new listener, and cuts off the oldest of the address with the most', async () => {
    const sockets: Socket[] = [];
    try {
      const operator = await listen(path, '127.0.0.2');
      sockets.push(operator.socket);
      const statuses = new Set<string>();
      for (let count = 0; count < 150; count++) {
        const { socket, status } = await listen(path, '127.0.0.3');
        statuses.add(status);
        sockets.push(socket);
      }
      expect([...statuses]).toEqual(['200']);
      const cutOff = sockets.slice(1, 52);
      for (const socket of cutOff) socket.resume();
      await expect.poll(() => cutOff.every(({ destroyed }) => destroyed)).toBe(true);
      const late = await listen(path, '127.0.0.4');
      sockets.push(late.socket);
      expect(late.status).toBe('200');
      // The operator's is older than all, and still open: it gets what happens.
      operator.socket.resume();
      expect(operator.socket.destroyed).toBe(false);
      expect(sockets.filter(({ destroyed }) => !destroyed)).toHaveLength(101);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  });
});
