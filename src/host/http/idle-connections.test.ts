import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readBeforeEnding } from './idle-connections.ts';

const request = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';

let server: Server;
let client: Socket;
/** The server's end of the connection. */
let served: Socket;
beforeEach(async () => {
  server = createServer((_incoming, outgoing) => void outgoing.end('answered'));
  readBeforeEnding(server);
  server.listen(0);
  await once(server, 'listening');
  client = connect((server.address() as AddressInfo).port);
  [served] = (await once(server, 'connection')) as [Socket];
  client.write(request);
  await once(client, 'data');
});
afterEach(() => {
  client.destroy();
  server.close();
});

test('a request that has come when the time of its idle connection is over is answered', async () => {
  client.write(request);
  // As after a stall: the timer before the read.
  served.emit('timeout');
  const [answer] = (await once(client, 'data')) as [Buffer];
  expect(answer.toString()).toContain('answered');
});

test('a connection over which nothing has come is ended', async () => {
  served.emit('timeout');
  await once(client, 'end');
  expect(served.destroyed).toBe(true);
});
