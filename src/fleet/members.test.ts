/** Connections between members, over real sockets and without Redis: what is answered, and what is given up. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { encodeMessage, type Message } from '../tensor/index.ts';
import { MemberListener, type Serve } from './listener.ts';
import { Peers } from './peers.ts';
import { isMemberName, placeOf } from './tls.ts';
import { fleetFormat, type Hello, type Member } from './types.ts';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

const echo: Serve = async (request) => await Promise.resolve({ header: { answered: true }, tensors: request.tensors });

/** A listener that takes members of the fleet `lab`, and this member's connections to it. */
async function connected(serve: Serve = echo, id = 'first'): Promise<{ member: Member; peers: Peers; from: string[] }> {
  const from: string[] = [];
  const listener = await MemberListener.listen({
    host: '127.0.0.1',
    port: 0,
    tls: undefined,
    connectionsMax: 100,
    stallMs: 1000,
    greet: ({ fleet, from: name }) => {
      from.push(name);
      return fleet === 'lab' ? { id } : { refused: 'it is in the fleet lab' };
    },
    serve,
  });
  const name = `127.0.0.1:${listener.port}`;
  const peers = new Peers({ tls: undefined, fleet: 'lab', name: '127.0.0.1:1', members: () => [] });
  closing.push(
    () => listener.close(),
    () => peers.close(),
  );
  const member = { name, id: 'first', url: 'http://127.0.0.1:1', format: fleetFormat } as Member;
  return { member, peers, from };
}

const call = (bytes: number): Message<object> => ({
  header: { ask: 'call' },
  tensors: [{ name: 'x', datatype: 'UINT8', shape: [bytes], data: Buffer.alloc(bytes, 7) }],
});

test('calls are answered one after the other on one connection, small ones and large ones', async () => {
  const { member, peers, from } = await connected();
  for (const bytes of [3, 3_000_000, 0]) {
    const { header, tensors } = await peers.ask(member, call(bytes));
    expect(header).toEqual({ answered: true });
    expect(Buffer.from(tensors[0]!.data).equals(Buffer.alloc(bytes, 7))).toBe(true);
  }
  expect(from).toEqual(['127.0.0.1:1']);
});

test('calls at the same time have a connection each', async () => {
  const { member, peers, from } = await connected();
  await Promise.all([1, 2, 3].map(async (bytes) => await peers.ask(member, call(bytes))));
  expect(from).toHaveLength(3);
});

test('a caller that is gone ends the connection of its call, and the member stops working on it', async () => {
  const gone = new AbortController();
  let begun: (() => void) | undefined;
  const hasBegun = new Promise<void>((resolve) => (begun = resolve));
  let stopped: (() => void) | undefined;
  const hasStopped = new Promise<void>((resolve) => (stopped = resolve));
  const { member, peers } = await connected(async (_request, _from, signal) => {
    begun!();
    await once(signal, 'abort');
    stopped!();
    return { header: {}, tensors: [] };
  });
  const asked = peers.ask(member, call(3), { signal: gone.signal });
  await hasBegun;
  gone.abort();
  await expect(asked).rejects.toThrow('the client is gone');
  await hasStopped;
});

test('a host that has started anew at the address is not the one of the report', async () => {
  const { member, peers } = await connected(echo, 'second');
  expect(await peers.confirm(member)).toBe('another host answers at its address');
  await expect(peers.ask(member, call(1))).rejects.toThrow(`host ${member.name} was lost: another host answers`);
});

test('a report of a host that nothing answers for is not confirmed', async () => {
  const { member, peers } = await connected();
  expect(await peers.confirm(member)).toBeUndefined();
  expect(await peers.confirm({ ...member, name: '127.0.0.1:1' })).toContain('ECONNREFUSED');
});

/** Resolves once the other end has closed the connection, with what came until then. */
async function closedAfter(socket: Socket): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

test('a connection that does not greet as a member of the fleet gets a reason and no answer', async () => {
  let served = 0;
  const { member } = await connected(async (request) => {
    served++;
    return await Promise.resolve(request);
  });
  const hello: Hello = { fleet: 'another', format: fleetFormat, from: '127.0.0.1:1', to: member.name };
  for (const [first, said] of [
    [hello, 'it is in the fleet lab'],
    [{ ask: 'ping' }, 'it is in the fleet lab'],
  ] as const) {
    const socket = connect(placeOf(member.name));
    socket.write(Buffer.concat(encodeMessage({ header: first, tensors: [] })));
    expect(await closedAfter(socket)).toContain(said);
  }
  const other = connect(placeOf(member.name)).end('GET / HTTP/1.1\r\n\r\n'.repeat(3));
  expect(await closedAfter(other)).not.toContain('answered');
  expect(served).toBe(0);
});

test.each([
  ['10.0.0.5:8002', true],
  ['[::1]:8002', true],
  ['host-a.internal:1', true],
  ['10.0.0.5', false],
  ['http://10.0.0.5:8002', false],
  ['host/path:1', false],
  ['user@host:1', false],
  ['', false],
])('%j as a name of a member: %s', (text, isName) => {
  expect(isMemberName(text)).toBe(isName);
});
