/** Odd ends of asynchronous calls: a full Redis, a cancelled run, a callback's address. */
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { Queue, Worker } from 'bullmq';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  callbackAllowProblem,
  callbackSignature,
  CallbackTargets,
  type AcceptedCall,
  type CallReply,
  type CallRunner,
} from '../../src/queue/index.ts';
import { CallStore } from '../../src/queue/call-store.ts';
import { AsyncCalls, openRedis, RedisLink } from '../../src/queue/redis.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { silentLog } from '../support/silent-log.ts';
import { waitLimitMs } from '../time-limits.ts';

const call = (id: string, callbackUrl?: string): AcceptedCall => ({
  id,
  functionName: 'f',
  version: undefined,
  method: 'POST',
  url: '/function/f',
  headers: {},
  body: Buffer.from('1'),
  callbackUrl,
  acceptedAtMs: Date.now(),
});

const replied: CallReply = { status: 201, headers: [], body: Buffer.from('done') };

/** The address that a connection to this name would get. */
function lookUp(targets: CallbackTargets, name: string): Promise<string> {
  return new Promise((resolve, reject) => {
    targets.lookup(name, { all: false }, (error, address) => {
      if (error !== null) reject(error);
      else if (typeof address === 'string') resolve(address);
    });
  });
}

/** A name server that gives every name these addresses. */
function resolver(addresses: readonly string[]): ConstructorParameters<typeof CallbackTargets>[1] {
  // @ts-expect-error -- of the overloads of dns.lookup only the one with `all` is used
  return (_name, _options, done: (error: null, found: object[]) => void) => {
    const found = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    done(null, found);
  };
}

describe('where callbacks may go', () => {
  const targets = new CallbackTargets(['10.1.0.0/16', 'receiver.internal', '*.lab', '::1']);

  test('an address that callbacks cannot reach is refused', () => {
    const urls = ['http://receiver:6000/', 'https://receiver:25/in', 'http://[::1]:0/', 'ftp://receiver/', 'here'];
    for (const url of urls) expect(targets.check(url)).toHaveProperty('reason');
    expect(targets.check('http://receiver:6000/')).toEqual({
      reason: 'of port 6000, which belongs to another protocol',
    });
    for (const url of ['http://receiver/', 'https://receiver:8443/:6000']) expect(targets.check(url)).toEqual({ url });
  });

  test('a user or password in the address is refused', () => {
    for (const url of ['http://me:secret@receiver/', 'http://me@receiver/']) {
      expect(targets.check(url)).toMatchObject({ reason: expect.stringContaining('a URL with a user or password') });
    }
  });

  test('private, loopback and link-local addresses are refused in every spelling, public ones are not', () => {
    const refused = [
      'http://127.0.0.1:6379/',
      'http://127.1/',
      'http://2130706433/',
      'http://0x7f.0.0.1/',
      'http://localhost/',
      'http://a.localhost./',
      'http://169.254.169.254/latest',
      'http://192.168.1.1/',
      'http://172.31.255.255/',
      'http://10.2.0.1/',
      'http://0.0.0.0/',
      'http://[::ffff:127.0.0.1]/',
      'http://[::ffff:a9fe:a9fe]/',
      'http://[fe80::1]/',
      'http://[fd00::1]/',
      'http://168.63.129.16/',
      'http://[::7f00:1]/',
      'http://[::ffff:0:7f00:1]/',
      'http://[64:ff9b::7f00:1]/',
      'http://[fec0::1]/',
      'http://[2001::1]/',
      'http://[100::1]/',
      'http://[5f00::1]/',
      'http://192.0.2.1/',
      'http://203.0.113.9/',
    ];
    for (const url of refused) {
      expect(targets.check(url), url).toMatchObject({ reason: expect.stringContaining('of the private address') });
    }
    for (const url of [
      'http://8.8.8.8/',
      'http://[2606:4700::1111]/',
      'http://168.63.129.17/',
      'http://[2001:200::1]/',
      'http://10.1.255.1/',
      'http://[::1]/',
    ]) {
      expect(targets.check(url), url).toEqual({ url });
    }
  });

  test('a name connects only to its public addresses, and not at all if it has none', async () => {
    const mixed = new CallbackTargets([], resolver(['127.0.0.1', '8.8.8.8']));
    expect(await lookUp(mixed, 'rebinding.example')).toBe('8.8.8.8');
    const hidden = new CallbackTargets([], resolver(['10.0.0.7']));
    await expect(lookUp(hidden, 'intranet.example')).rejects.toThrow(
      "'intranet.example' is the private address 10.0.0.7, which the setting async.callbackAllow does not list",
    );
  });

  test('a listed name may be private, and a listed suffix covers the names below it', async () => {
    const listed = new CallbackTargets(['receiver.internal', '*.lab'], resolver(['10.0.0.7']));
    expect(await lookUp(listed, 'receiver.internal')).toBe('10.0.0.7');
    expect(await lookUp(listed, 'a.b.lab')).toBe('10.0.0.7');
    await expect(lookUp(listed, 'lab')).rejects.toThrow('private address');
    await expect(lookUp(listed, 'other.internal')).rejects.toThrow('private address');
  });

  test.each(['10.0.0.0/33', '300.1.1.1', 'a b', 'http://receiver', '*'])(
    '%s is not a valid entry of the list',
    (entry) => {
      expect(callbackAllowProblem(entry)).toContain(`'${entry}' is neither a host name`);
    },
  );
});

let count = 0;

/** Polls, like a client. */
const until = (isSo: () => Promise<boolean>): Promise<true> => vi.waitUntil(isSo, { interval: 10 });

describe.skipIf(redisMissing !== undefined)('asynchronous calls', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await RedisServer.start();
  });

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
  });

  interface MakeOptions {
    readonly keepMs?: number;
    readonly backoffMs?: number;
    readonly timeoutMs?: number;
    readonly allow?: readonly string[];
    readonly secret?: string;
    /** Default: one that no other test uses. */
    readonly prefix?: string;
    readonly url?: string;
  }

  interface Made extends AsyncDisposable {
    readonly calls: AsyncCalls;
    readonly link: RedisLink;
  }

  async function make(
    run: CallRunner,
    {
      keepMs = 3_600_000,
      backoffMs = 10,
      timeoutMs = waitLimitMs,
      prefix = `calls${++count}`,
      url = server.url,
      ...callback
    }: MakeOptions = {},
  ): Promise<Made> {
    const link = new RedisLink({ url, prefix });
    await link.ready(waitLimitMs);
    const calls = new AsyncCalls({
      link,
      run,
      concurrency: 4,
      keepMs,
      waitingMax: 100,
      payloadBytesMax: 1e6,
      callback: {
        attemptsMax: 3,
        backoffMs,
        timeoutMs,
        targets: new CallbackTargets(callback.allow ?? ['127.0.0.1']),
        secret: callback.secret,
      },
      log: silentLog,
    });
    calls.start();
    return {
      calls,
      link,
      [Symbol.asyncDispose]: async () => {
        await calls.stop(0);
        link.close();
      },
    };
  }

  test('a call that is cancelled while it runs is listed as cancelled', async () => {
    const runs: ((reply: CallReply) => void)[] = [];
    await using made = await make(() => new Promise((resolve) => void runs.push(resolve)));
    await made.calls.accept(call('a'));
    await until(() => Promise.resolve(runs.length === 1));
    expect(await made.calls.cancel('a')).toBe('cancelled');
    runs[0]?.(replied);
    await until(async () => made.calls.counts.dropped === 1);
    await until(async () => (await made.calls.waiting()).running === 0);
    expect(await made.calls.list(10)).toMatchObject([{ id: 'a', state: 'cancelled', status: undefined }]);
    expect(made.calls.counts).toMatchObject({ accepted: 1, finished: 0, cancelled: 1 });
  });

  test('a call whose reply has expired is not listed any more', async () => {
    const runs: ((reply: CallReply) => void)[] = [];
    await using made = await make(() => new Promise((resolve) => void runs.push(resolve)), { keepMs: 1000 });
    await made.calls.accept(call('a'));
    await until(() => Promise.resolve(runs.length === 1));
    expect(await made.calls.list(10)).toMatchObject([{ id: 'a', state: 'running' }]);
    runs[0]?.(replied);
    await until(async () => (await made.calls.status('a')) === undefined);
    await until(async () => (await made.calls.list(10)).length === 0);
    expect(made.calls.counts.finished).toBe(1);
  });

  test('calls and callbacks of hosts of the version before are run, and shown as they ended', async () => {
    await using made = await make(() => Promise.resolve(replied));
    const { link, calls } = made;
    const options = { connection: link.commands, prefix: link.key('queues') };
    const store = new CallStore(link, 60_000);
    await store.put(call('old'));
    await store.keep('old');
    const queues = [new Queue('calls', options), new Queue('callbacks', options)] as const;
    const data = { id: 'old', functionName: 'f', acceptedAtMs: 1 };
    await queues[0].add('call', data, { jobId: 'call-old', attempts: 100, backoff: { type: 'custom' } });
    await until(async () => (await calls.status('old'))?.state === 'finished');

    await store.put(call('sent', 'http://127.0.0.1:9/'));
    await store.end((await store.call('sent'))!, { state: 'finished', reply: replied });
    const job = { id: 'sent', origin: 'http://127.0.0.1:9' };
    await calls.stop(0); // The older host has sent it.
    const sender = new Worker('callbacks', () => Promise.resolve(), options);
    const sent = once(sender, 'completed');
    await queues[1].add('callback', job, { jobId: 'callback-sent', attempts: 3 });
    await sent;
    expect((await calls.status('sent'))?.call.callback).toEqual({ state: 'delivered', attempts: 1 });
    await Promise.all([sender.close(), ...queues.map((queue) => queue.close())]);
  });

  test('an id is free again once its reply has expired', async () => {
    let runs = 0;
    await using made = await make(() => Promise.resolve({ ...replied, status: 200 + ++runs }), { keepMs: 1000 });
    for (const run of [1, 2]) {
      expect(await made.calls.accept(call('a'))).toBe('accepted');
      await until(async () => (await made.calls.status('a'))?.state === 'finished');
      expect(await made.calls.status('a')).toMatchObject({ reply: { status: 200 + run } });
      await until(async () => (await made.calls.status('a')) === undefined);
    }
  });

  test("states and tries of calls and callbacks are those of BullMQ's own board", async () => {
    const receiver = createServer((request, response) => {
      response.writeHead(request.url === '/takes' ? 204 : 500).end();
    });
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const address = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
    const held: (() => void)[] = [];
    const run: CallRunner = async ({ id }) => {
      if (id.startsWith('held')) await new Promise<void>((resolve) => void held.push(resolve));
      return replied;
    };
    await using made = await make(run);
    const { calls, link } = made;
    await calls.accept(call('delivered', `${address}/takes`));
    await calls.accept(call('given-up', `${address}/refuses`));
    await until(async () => calls.counts.callbacksDelivered + calls.counts.callbacksGivenUp === 2);
    for (let index = 0; index < 7; index++) await calls.accept(call(`held${index}`));
    await until(async () => (await calls.waiting()).running === 4);
    await calls.cancel('held0');
    await until(async () => (await calls.list(20)).some(({ id }) => id === 'held0'));

    const options = { connection: link.commands, prefix: link.key('queues') };
    const board = { calls: new Queue('calls', options), callbacks: new Queue('callbacks', options) };
    const said = await calls.waiting();
    const counts = await board.calls.getJobCounts('waiting', 'active', 'completed', 'failed', 'delayed');
    expect(counts).toEqual({ waiting: said.waiting, active: said.running, completed: 2, failed: 0, delayed: 0 });
    expect(said).toEqual({ waiting: 3, running: 4 });
    const listed = await calls.list(20);
    for (const state of ['waiting', 'running', 'finished'] as const) {
      const there = { waiting: 3, running: 4, finished: 2 }[state];
      expect(listed.filter((each) => each.state === state)).toHaveLength(there);
    }
    expect(await board.callbacks.getJobCounts('completed', 'failed')).toEqual({ completed: 1, failed: 1 });
    expect((await calls.status('delivered'))?.call.callback).toEqual({ state: 'delivered', attempts: 1 });
    const job = await board.callbacks.getJob('callback-given-up');
    expect((await calls.status('given-up'))?.call.callback).toEqual({
      state: 'given-up',
      attempts: 3,
      lastError: job!.failedReason,
    });
    for (const resolve of held) resolve();
    await Promise.all([board.calls.close(), board.callbacks.close()]);
    receiver.close();
  });

  test('accepted calls are answered beside deaths of hosts and of Redis, each with one reply and its callback', async () => {
    await using redis = await RedisServer.start({ durable: true });
    const called = new Map<string, string>();
    const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      called.set(String(request.headers['x-call-id']), (await buffer(request)).toString());
      response.writeHead(204).end();
    };
    const receiver = createServer((request, response) => void take(request, response));
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const callbackUrl = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
    const ids = Array.from({ length: 40 }, (_, index) => `c${index}`);
    const runs = new Map<string, number>();
    /** Runs of the first host, which dies with them. */
    const dying: (() => void)[] = [];
    const answer = ({ id }: AcceptedCall): CallReply => {
      runs.set(id, (runs.get(id) ?? 0) + 1);
      return { ...replied, body: Buffer.from(`the answer of ${id}`) };
    };
    const shared = { prefix: 'kills', url: redis.url };
    const first = await make(async (each) => {
      await new Promise<void>((resolve) => void dying.push(resolve));
      return answer(each);
    }, shared);
    for (const id of ids.slice(0, 20)) await first.calls.accept(call(id, callbackUrl));
    await until(() => Promise.resolve(dying.length === 4));
    first.link.close(); // It renews no lock any more, as if it had been killed.

    await using second = await make((each) => Promise.resolve(answer(each)), shared);
    await second.calls.accept(call('c20', callbackUrl));
    await until(async () => (await second.calls.status('c20'))?.state === 'finished');
    await redis.kill();
    await expect(second.calls.accept(call('c21', callbackUrl))).rejects.toMatchObject({ code: 'unavailable' });
    await redis.start();
    await second.link.ready(waitLimitMs);
    for (const id of ids.slice(20)) {
      const outcome = await second.calls.accept(call(id, callbackUrl));
      expect(outcome).toBe(id === 'c20' ? 'known' : 'accepted');
    }
    // What the dead host was running runs again at the other.
    await until(() => Promise.resolve(called.size === ids.length));
    for (const resolve of dying) resolve(); // Had it only been cut off, its replies would come too late.
    for (const id of ids) {
      const status = await second.calls.status(id);
      expect(status?.state === 'finished' && Buffer.from(status.reply.body).toString()).toBe(`the answer of ${id}`);
      expect(called.get(id)).toBe(`the answer of ${id}`);
    }
    expect(await second.calls.waiting()).toEqual({ waiting: 0, running: 0 });
    expect((await second.calls.list(100)).map(({ state }) => state)).toEqual(ids.map(() => 'finished'));
    receiver.close();
    await first.calls.stop(0);
  });

  test('a call whose acceptance failed before it had a job is counted by the retry that finishes it', async () => {
    const runs: ((reply: CallReply) => void)[] = [];
    await using made = await make(() => new Promise((resolve) => void runs.push(resolve)));
    expect(await new CallStore(made.link, 60_000).put(call('a'))).toBe('put');
    expect(await made.calls.accept(call('a'))).toBe('accepted');
    expect(await made.calls.accept(call('a'))).toBe('known');
    expect(made.calls.counts.accepted).toBe(1);
    await until(() => Promise.resolve(runs.length === 1));
    runs[0]?.(replied);
    await until(async () => (await made.calls.status('a'))?.state === 'finished');
    expect(await made.calls.accept(call('a'))).toBe('known');
    expect(made.calls.counts).toMatchObject({ accepted: 1, finished: 1 });
  });

  test('another call under the id of one that ends during its acceptance is refused, and the same one is recognised', async () => {
    await using made = await make(() => new Promise(() => undefined));
    const store = new CallStore(made.link, 60_000);
    const { commands } = made.link;
    const set = commands.set.bind(commands) as (...given: unknown[]) => Promise<unknown>;
    for (const [id, body, expected] of [
      ['b', '2', 'other'],
      ['c', '1', 'same'],
    ] as const) {
      await store.put(call(id));
      const first = await store.call(id);
      // Between the check for a reply and the write.
      Object.assign(commands, {
        set: async (...given: unknown[]) => {
          Object.assign(commands, { set });
          await store.end(first!, { state: 'finished', reply: replied });
          return await set(...given);
        },
      });
      expect(await store.put({ ...call(id), body: Buffer.from(body) })).toBe(expected);
      expect(await store.call(id)).toBeUndefined();
    }
  });

  test('a call that runs although its acceptance failed is counted by the run', async () => {
    const runs: ((reply: CallReply) => void)[] = [];
    await using made = await make(() => new Promise((resolve) => void runs.push(resolve)));
    const { commands } = made.link;
    const persist = commands.persist.bind(commands);
    commands.persist = () => Promise.reject(new Error('the connection was closed'));
    await expect(made.calls.accept(call('a'))).rejects.toMatchObject({ code: 'unavailable' });
    commands.persist = persist;
    await until(() => Promise.resolve(runs.length === 1));
    runs[0]?.(replied);
    await until(async () => (await made.calls.status('a'))?.state === 'finished');
    expect(await made.calls.accept(call('a'))).toBe('known');
    await until(() => Promise.resolve(made.calls.counts.finished === 1));
    expect(made.calls.counts.accepted).toBe(1);
  });

  test('a reply refused by a full Redis is stored once it has room', async () => {
    const admin = openRedis(server.url, {});
    let runs = 0;
    await using made = await make(async () => {
      if (++runs === 1) await admin.config('SET', 'maxmemory', '1');
      return replied;
    });
    await made.calls.accept(call('a'));
    await until(async () => (await admin.config('GET', 'maxmemory')).includes('1'));
    await expect(made.calls.accept(call('b'))).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('refuses: OOM') as string,
    });
    await admin.config('SET', 'maxmemory', '0');
    await until(async () => (await made.calls.status('a'))?.state === 'finished');
    expect(made.calls.counts).toMatchObject({ accepted: 1, finished: 1, dropped: 0 });
    admin.disconnect();
  });

  test('a reply that no Redis accepts ends its call with the reason', async () => {
    const body = Buffer.alloc(512 * 2 ** 20);
    await using made = await make(() => Promise.resolve({ ...replied, body }));
    await made.calls.accept(call('a'));
    await until(async () => (await made.calls.status('a'))?.state === 'finished');
    const ended = await made.calls.status('a');
    expect(ended).toMatchObject({ reply: { status: 503 } });
    expect(ended?.state === 'finished' && Buffer.from(ended.reply.body).toString()).toMatch(
      /could not be kept: its 536870912 bytes are over/,
    );
  });

  test('a signed callback proves its sender: time and body are in the signature', async () => {
    const receiver = createServer();
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const { port } = receiver.address() as AddressInfo;
    const received = new Promise<{ headers: IncomingHttpHeaders; body: Buffer }>((resolve) => {
      receiver.on('request', (request: IncomingMessage, response: ServerResponse) => {
        response.writeHead(204).end();
        resolve(buffer(request).then((body) => ({ headers: request.headers, body })));
      });
    });
    await using made = await make(() => Promise.resolve(replied), { secret: 'between us' });
    await made.calls.accept(call('a', `http://127.0.0.1:${port}/`));
    const { headers, body } = await received;
    const timestamp = String(headers['x-turntable-timestamp']);
    expect(Math.abs(Number(timestamp) - Date.now() / 1000)).toBeLessThan(60);
    expect(headers['x-turntable-signature']).toBe(callbackSignature('between us', timestamp, body));
    expect(body.toString()).toBe('done');
    receiver.close();
  });

  test('a callback that an older host accepted for a private address is not sent', async () => {
    await using made = await make(() => Promise.resolve(replied), { allow: [] });
    await made.calls.accept(call('a', 'http://127.0.0.1:9999/'));
    await until(async () => made.calls.counts.callbacksGivenUp === 1);
    expect((await made.calls.status('a'))?.call.callback).toMatchObject({
      lastError: expect.stringContaining('of the private address 127.0.0.1'),
    });
  });

  test('a callback that outlives its reply counts as given up', async () => {
    const receiver = createServer((_request, response) => void response.writeHead(500).end());
    receiver.listen(0, '127.0.0.1');
    await once(receiver, 'listening');
    const { port } = receiver.address() as AddressInfo;
    await using made = await make(() => Promise.resolve(replied), { keepMs: 1000, backoffMs: 1500 });
    await made.calls.accept(call('a', `http://127.0.0.1:${port}/`));
    await until(async () => made.calls.counts.callbacksGivenUp === 1);
    expect(made.calls.counts.callbacksDelivered).toBe(0);
    receiver.close();
  });

  test('a receiver that hangs delays no callback to another, and gets all of its own once it answers', async () => {
    const held: ServerResponse[] = [];
    let hangs = true;
    const [hanging, quick] = [
      createServer((_request, response) => void (hangs ? held.push(response) : response.writeHead(204).end())),
      createServer((_request, response) => void response.writeHead(204).end()),
    ];
    const urls: string[] = [];
    for (const receiver of [hanging, quick]) {
      receiver.listen(0, '127.0.0.1');
      await once(receiver, 'listening');
      urls.push(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`);
    }
    await using made = await make(() => Promise.resolve(replied));
    for (let index = 0; index < 40; index++) await made.calls.accept(call(`h${index}`, urls[0]));
    await until(() => Promise.resolve(held.length === 16));
    await made.calls.accept(call('q', urls[1]));
    await until(async () => (await made.calls.status('q'))?.call.callback?.state === 'delivered');
    expect(held).toHaveLength(16);
    hangs = false;
    for (const response of held) response.writeHead(204).end();
    await until(() => Promise.resolve(made.calls.counts.callbacksDelivered === 41));
    expect((await made.calls.status('h39'))?.call.callback).toEqual({ state: 'delivered', attempts: 1 });
    for (const receiver of [hanging, quick]) receiver.close();
  });
});
