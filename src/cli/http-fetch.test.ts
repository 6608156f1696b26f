import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { httpFetch } from './http-fetch.ts';

let server: Server;
let url: string;

beforeAll(async () => {
  server = createServer((request, reply) => void answer(request, reply));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

async function answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
  const { url: path, method, headers: sent } = request;
  const body = await buffer(request);
  if (path === '/moved') reply.writeHead(307, { location: '/echo' }).end();
  else if (path === '/nothing') reply.writeHead(204, { 'x-said': 'yes' }).end();
  else if (path === '/broken') reply.write('first', () => reply.destroy());
  else {
    const told = JSON.stringify([method, sent.authorization, body.toString('hex')]);
    reply.writeHead(418, 'No Coffee', { 'set-cookie': ['a=1', 'b=2'], 'x-said': 'yes' }).end(told);
  }
}

/** All that commands read of an answer. */
async function read(response: Response): Promise<unknown> {
  const { status, statusText, ok, headers } = response;
  return [status, statusText, ok, headers.get('x-said'), headers.getSetCookie(), await response.text()];
}

const headers = new Headers({ authorization: 'Bearer key' });
test.each<[string, RequestInit]>([
  ['/echo', { headers }],
  ['/echo', { method: 'POST', body: 'täxt', headers }],
  ['/echo', { method: 'PUT', body: Uint8Array.of(0, 255, 10), headers }],
  ['/echo', { method: 'PUT', body: new Blob(['of another kind']), headers }],
  ['/echo', { method: 'DELETE' }],
  ['/moved', { method: 'POST', body: 'moved', headers }],
  ['/nothing', {}],
])('the answer to %s with %j is that of fetch', async (path, init) => {
  expect(await read(await httpFetch(url + path, init))).toEqual(await read(await fetch(url + path, init)));
});

test("asking a host starts no parser of Node's fetch", async () => {
  const fetched = vi.spyOn(globalThis, 'fetch');
  await httpFetch(`${url}/echo`, { method: 'POST', body: 'text' });
  expect(fetched).not.toHaveBeenCalled();
  await httpFetch(`${url}/moved`);
  expect(fetched).toHaveBeenCalledOnce();
  fetched.mockRestore();
});

test('a fetch rejects if no host accepts it, the answer ends early, or a signal stops it', async () => {
  await expect(httpFetch('http://127.0.0.1:9/')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  const early = await httpFetch(`${url}/broken`);
  await expect(early.text()).rejects.toThrow('aborted');
  await expect(httpFetch(`${url}/echo`, { signal: AbortSignal.abort() })).rejects.toThrow(/abort/i);
});
