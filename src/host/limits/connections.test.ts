import { EventEmitter } from 'node:events';
import type { Server, Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Connections, type ConnectionsOptions, type Door } from './connections.ts';

/** A server and the sockets that it accepts. */
class Doors {
  readonly warnings: string[] = [];
  readonly connections: Connections;
  readonly #servers: Record<Door, EventEmitter> = { http: new EventEmitter(), grpc: new EventEmitter() };
  #port = 40_000;

  constructor(options: Partial<ConnectionsOptions>) {
    const warn = (_facts: object, message: string): void => void this.warnings.push(message);
    this.connections = new Connections({ max: 1000, filesMax: undefined, trustedProxies: [], warn, ...options });
    for (const door of ['http', 'grpc'] as const) this.connections.watch(this.#servers[door] as Server, door);
  }

  accept(door: Door, remoteAddress: string, fd = 20): Socket {
    const destroy = (): void => void socket.emit('close');
    const ends = { remoteAddress, remotePort: this.#port++, localPort: 8000, _handle: { fd }, destroy };
    const socket = Object.assign(new EventEmitter(), ends) as unknown as Socket;
    this.#servers[door].emit('connection', socket);
    return socket;
  }

  fail(door: Door, code: string): void {
    this.#servers[door].emit('error', Object.assign(new Error(`accept ${code}`), { code }));
  }

  /** What a request on a connection is told; undefined: it is served. */
  refusal(socket: Socket, headers: Record<string, string> = {}, request = new EventEmitter()): string | undefined {
    try {
      this.connections.admit(
        socket,
        (name) => headers[name],
        (over) => request.once('close', over),
      );
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  }
}

const ofOne = /^3 connections of this address are open, half of this host's limit \(limits\.connections\)$/;

describe('connections', () => {
  test('count over both doors: of all, and of one address or network of IPv6', () => {
    const doors = new Doors({ max: 6 });
    for (const door of ['http', 'grpc', 'http'] as const) {
      expect(doors.refusal(doors.accept(door, '2001:db8:0:1::7'))).toBeUndefined();
    }
    expect(doors.refusal(doors.accept('grpc', '2001:db8:0:1:ffff::8'))).toMatch(ofOne);
    for (const address of ['192.0.2.1', '::ffff:192.0.2.1', '2001:db8:0:2::7']) {
      expect(doors.refusal(doors.accept('grpc', address))).toBeUndefined();
    }
    expect(doors.refusal(doors.accept('http', '198.51.100.9'))).toMatch(/^6 connections are open, which is this host/);
    expect(doors.connections.refusals).toEqual({ limit: 1, address: 1, files: 0, resets: 0 });
    expect(doors.warnings).toHaveLength(1);
  });

  test('of a full host serve others once they have closed, however they come and go', () => {
    const address = fc.constantFrom('192.0.2.1', '192.0.2.2', '2001:db8::1');
    const arrival = fc.record({ door: fc.constantFrom('http' as const, 'grpc' as const), address, ends: fc.boolean() });
    fc.assert(
      fc.property(fc.array(arrival, { maxLength: 60 }), (arrivals) => {
        const doors = new Doors({ max: 8 });
        const open: Socket[] = [];
        for (const { door, address: from, ends } of arrivals) {
          if (ends) open.pop()?.emit('close');
          else open.push(doors.accept(door, from));
        }
        for (const socket of open) socket.emit('close');
        expect(doors.connections.open).toEqual({ http: 0, grpc: 0 });
        const again = Array.from({ length: 4 }, () => doors.accept('grpc', '192.0.2.1'));
        expect(again.map((socket) => doors.refusal(socket))).toEqual(again.map(() => undefined));
      }),
    );
  });

  test.each([
    [1024, 1023 - 64, 1024 - 64],
    [200, 174, 175],
  ])('of %i files leave some for others, by the number of their file', (filesMax, last, tooMany) => {
    const doors = new Doors({ filesMax });
    expect(doors.refusal(doors.accept('http', '192.0.2.1', last))).toBeUndefined();
    expect(doors.refusal(doors.accept('grpc', '192.0.2.2', tooMany))).toContain('(ulimit -n)');
    doors.fail('http', 'EMFILE');
    doors.fail('grpc', 'ENFILE');
    doors.fail('grpc', 'ECONNABORTED');
    expect(doors.connections.refusals).toEqual({ limit: 0, address: 0, files: 3, resets: 0 });
  });
});

describe('behind proxies', () => {
  const trustedProxies = ['10.0.0.7', '10.1.0.0/16', 'fd00::/8'];
  const from = (peer: string, headers: Record<string, string>): string =>
    new Doors({ trustedProxies }).connections.addressOf(peer, (name) => headers[name]);

  test.each([
    ['10.0.0.7', { 'x-forwarded-for': '198.51.100.1, 192.0.2.9' }, '192.0.2.9'],
    ['10.0.0.7', { 'x-forwarded-for': '198.51.100.1, 192.0.2.9,10.1.2.3' }, '192.0.2.9'],
    ['::ffff:10.1.0.1', { 'x-forwarded-for': '192.0.2.9:4711' }, '192.0.2.9'],
    ['fd00::1', { 'x-forwarded-for': '[2001:db8:0:1::9]:4711' }, '2001:db8:0:1::/64'],
    ['10.0.0.7', { forwarded: 'for=198.51.100.1, for="[2001:DB8:0:1::9]:4711";proto=https' }, '2001:db8:0:1::/64'],
    ['10.0.0.7', { forwarded: 'proto=http;For=192.0.2.9;by=10.0.0.7' }, '192.0.2.9'],
    ['10.0.0.7', { 'x-forwarded-for': '192.0.2.9', forwarded: 'for=198.51.100.1' }, '192.0.2.9'],
    // Nobody to be found: the last proxy that is known.
    ['10.0.0.7', {}, '10.0.0.7'],
    ['10.0.0.7', { 'x-forwarded-for': ' ' }, '10.0.0.7'],
    ['10.0.0.7', { 'x-forwarded-for': '192.0.2.9, unknown' }, '10.0.0.7'],
    ['10.0.0.7', { forwarded: 'for=192.0.2.9, for=_hidden, for=10.1.0.1' }, '10.1.0.1'],
    ['10.0.0.7', { 'x-forwarded-for': '10.1.0.1, 10.1.0.2' }, '10.1.0.1'],
    // Nobody believes others.
    ['192.0.2.1', { 'x-forwarded-for': '198.51.100.1' }, '192.0.2.1'],
    ['10.2.0.1', { forwarded: 'for=198.51.100.1' }, '10.2.0.1'],
  ])('a request from %s with %j is from %s', (peer, headers, client) => {
    expect(from(peer, headers)).toBe(client);
  });

  test('what a client writes in front changes nothing', () => {
    fc.assert(
      fc.property(fc.string(), fc.ipV4(), (made, client) => {
        fc.pre(!client.startsWith('10.'));
        expect(from('10.0.0.7', { 'x-forwarded-for': `${made}, ${client}, 10.1.0.1` })).toBe(client);
      }),
    );
  });

  test('a proxy has no share, and each of its clients has one, with their direct connections', () => {
    const doors = new Doors({ max: 6, trustedProxies });
    const sockets = Array.from({ length: 5 }, () => doors.accept('http', '10.0.0.7'));
    const client = { 'x-forwarded-for': '192.0.2.9' };
    expect(doors.refusal(doors.accept('http', '192.0.2.9'))).toBeUndefined();
    const request = new EventEmitter();
    expect(doors.refusal(sockets[0]!, client, request)).toBeUndefined();
    expect(doors.refusal(sockets[1]!, client)).toBeUndefined();
    expect(doors.refusal(sockets[2]!, client)).toMatch(ofOne);
    expect(doors.refusal(sockets[3]!, { 'x-forwarded-for': '192.0.2.8' })).toBeUndefined();
    expect(doors.refusal(sockets[4]!)).toBeUndefined();
    request.emit('close');
    expect(doors.refusal(sockets[2]!, client)).toBeUndefined();
  });
});
