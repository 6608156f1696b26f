/** A Redis that is up but accepts nothing: waiting callers get the reason, and the log is not flooded. */
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { expect, test, vi } from 'vitest';
import { loadConfig, startHost } from '../../src/host/index.ts';
import type { RedisHealth, RemoteTaker } from '../../src/queue/index.ts';
import { redisCost } from '../../src/queue/redis-health.ts';
import { errorLog } from '../../src/queue/error-log.ts';
import { RedisLink, startRemoteWorker } from '../../src/queue/redis.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { silentLog } from '../support/silent-log.ts';
import { waitLimitMs } from '../time-limits.ts';

const nextHealth = (link: RedisLink): Promise<RedisHealth> =>
  new Promise((resolve) => {
    const end = link.onHealth((health) => {
      end();
      resolve(health);
    });
  });

/** Fails like any caller that waits for this link, once the link knows that Redis refuses. */
async function refusedLink(url: string, reason: RegExp): Promise<unknown> {
  const link = new RedisLink({ url, prefix: 't' });
  // The link knows the reason from the first error, but that Redis refuses only from its own first command.
  await vi.waitUntil(() => reason.test(link.failure(undefined).message));
  return await link.ready(1).finally(() => link.close());
}

const idleTaker: RemoteTaker = {
  name: 'idle',
  cores: 1,
  cacheBytes: 0,
  cacheBytesMax: 0,
  held: 0,
  offer: () => undefined,
  work: () => ({ outstanding: 0, backlogMs: 0 }),
  run: () => Promise.reject(new Error('it has no functions')),
  revisions: () => [],
  learn: () => undefined,
  refresh: () => undefined,
};

test.skipIf(redisMissing !== undefined)(
  'a primary that becomes a replica is read-only, with the reason, until it is one again',
  async () => {
    await using server = await RedisServer.start();
    const [admin, link] = [
      new RedisLink({ url: server.url, prefix: 'a' }),
      new RedisLink({ url: server.url, prefix: 't' }),
    ];
    await Promise.all([admin.ready(waitLimitMs), link.ready(waitLimitMs)]);
    await admin.commands.replicaof('127.0.0.1', 1);
    const gone = nextHealth(link);
    await expect(link.commands.set('t:x', '1')).rejects.toThrow(/^READONLY/);
    expect(await gone).toMatchObject({ status: 'read-only', reason: expect.stringMatching(/^READONLY/) as string });
    expect(() => link.check()).toThrow(/^Redis at \S+ refuses: READONLY/);
    await expect(refusedLink(server.url, /READONLY/)).rejects.toThrow(/refuses: READONLY/);
    const back = nextHealth(link);
    await admin.commands.replicaof('NO', 'ONE');
    expect(await back).toMatchObject({ status: 'up' });
    for (const each of [admin, link]) each.close();
  },
);

test.skipIf(redisMissing !== undefined)('a Redis that cannot save to its disk is read-only until it can', async () => {
  await using server = await RedisServer.start();
  const link = new RedisLink({ url: server.url, prefix: 't' });
  await link.ready(waitLimitMs);
  await mkdir(join(server.folder, 'dump.rdb')); // A save ends by putting its file in this place.
  await server.command('CONFIG SET save "3600 1"');
  await server.command('SET t:x 1');
  await server.command('BGSAVE');
  await expect.poll(async () => await link.commands.info()).toMatch(/rdb_last_bgsave_status:err/);
  const gone = nextHealth(link);
  await expect(link.commands.set('t:y', '1')).rejects.toThrow(/^MISCONF/);
  expect(await gone).toMatchObject({ status: 'read-only', reason: expect.stringMatching(/^MISCONF/) as string });
  const back = nextHealth(link);
  await server.command('CONFIG SET save ""');
  expect(await back).toMatchObject({ status: 'up' });
  link.close();
});

test.skipIf(redisMissing !== undefined)(
  'a Redis whose memory is full and evicts nothing is full until it has room',
  async () => {
    await using server = await RedisServer.start({ durable: true });
    const link = new RedisLink({ url: server.url, prefix: 't' });
    await link.ready(waitLimitMs);
    const reason = /^OOM command not allowed/;
    await server.command('CONFIG SET maxmemory 1');
    const gone = nextHealth(link);
    await expect(link.commands.set('t:x', '1')).rejects.toThrow(reason);
    const health = await gone;
    expect(health).toMatchObject({ status: 'full', reason: expect.stringMatching(reason) as string });
    expect(redisCost(health)).toMatch(/^The memory of Redis is full: asynchronous calls are refused, .*OOM/);
    // It can be read all the time.
    link.check();
    await expect(link.commands.get('t:x')).resolves.toBeNull();
    // Found by the probe, before the first call.
    await expect(refusedLink(server.url, /OOM/)).rejects.toThrow(/refuses: OOM/);
    const back = nextHealth(link);
    await server.command('CONFIG SET maxmemory 0');
    expect(await back).toMatchObject({ status: 'up' });
    link.close();
  },
);

test.skipIf(redisMissing !== undefined)(
  'each change of what Redis evicts, and of its policy, is one warning with the numbers, and calls go on',
  async () => {
    await using server = await RedisServer.start({ durable: true });
    const said: unknown[] = [];
    const log = { ...silentLog, warn: (fields: object, text: string) => void said.push({ ...fields, text }) };
    const link = new RedisLink({ url: server.url, prefix: 't', log, lookEveryMs: 5 });
    await link.ready(waitLimitMs);
    const works: boolean[] = [];
    link.onChange((each) => works.push(each));
    await server.command('CONFIG SET maxmemory-policy allkeys-lru');
    await expect
      .poll(() => said)
      .toEqual([expect.objectContaining({ setting: 'maxmemory-policy', value: 'allkeys-lru' })]);
    const healths: RedisHealth[] = [];
    const calm = new Promise<void>((resolve) => {
      link.onHealth((health) => {
        healths.push(health);
        link.check();
        if (health.status === 'up') resolve();
      });
    });
    const used = Number(/used_memory:(\d+)/.exec(await link.commands.info('memory'))?.[1]);
    for (let key = 0; key < 8; key++) await link.commands.set(`t:large${key}`, Buffer.alloc(2 ** 20));
    // In one step, so that no look comes in between.
    await link.commands
      .multi()
      .config('SET', 'maxmemory', String(used + 6 * 2 ** 20))
      .set('t:x', '1')
      .exec();
    await calm;
    const evicted = link.facts?.evictedKeys ?? 0;
    expect(evicted).toBeGreaterThan(0);
    const reason = `it has evicted ${evicted} keys, 0 at the last look; maxmemory-policy is allkeys-lru`;
    expect(healths).toMatchObject([{ status: 'evicting', reason }, { status: 'up' }]);
    const text = `Redis evicts keys: accepted calls and kept replies may be lost (${reason}).`;
    expect(said.slice(1)).toEqual([expect.objectContaining({ evictedKeys: evicted, policy: 'allkeys-lru', text })]);
    expect(works).toEqual([]);
    link.close();
  },
);

test('a server that still loads its data is reported as loading, and as away once it is gone', async () => {
  const facts = 'loading:1\r\nloading_eta_seconds:60\r\n';
  const replies: Readonly<Record<string, string>> = {
    hello: '%1\r\n$5\r\nproto\r\n:3\r\n',
    client: '+OK\r\n',
    info: `$${facts.length}\r\n${facts}\r\n`,
  };
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      for (const [, name = ''] of bytes.toString().matchAll(/\*\d+\r\n\$\d+\r\n(\w+)/g)) {
        socket.write(replies[name.toLowerCase()] ?? '-LOADING Redis is loading the dataset in memory\r\n');
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const link = new RedisLink({ url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`, prefix: 't' });
  const reasonIs = (reason: RegExp): Promise<true> =>
    vi.waitUntil(() => link.health.status !== 'up' && reason.test(link.health.reason), { interval: 10 });
  await reasonIs(/^it is loading its data$/);
  expect(() => link.check()).toThrow(/^Redis at \S+ refuses: it is loading its data$/);
  await expect(link.ready(1)).rejects.toThrow(/refuses: it is loading its data$/);
  server.close();
  link.commands.disconnect(true);
  await reasonIs(/ECONNREFUSED/);
  expect(() => link.check()).toThrow(/^Redis at \S+ does not answer$/);
  link.close();
});

test.skipIf(redisMissing !== undefined)(
  'a Redis that takes commands and answers none is down soon after the first of them, until it answers',
  async () => {
    await using server = await RedisServer.start();
    const link = new RedisLink({ url: server.url, prefix: 't' });
    await link.ready(waitLimitMs);
    server.signal('SIGSTOP');
    const gone = nextHealth(link);
    const error: unknown = await link.commands.get('t:x').catch((error: unknown) => link.failure(error));
    expect(error).toMatchObject({ message: `Redis at ${server.socket} does not answer` });
    expect(await gone).toMatchObject({ status: 'down', reason: 'no answer within 3000 ms' });
    expect(() => link.check()).toThrow(/does not answer$/);
    server.signal('SIGCONT');
    await link.ready(waitLimitMs);
    expect(link.health.status).toBe('up');
    link.close();
  },
);

test.skipIf(redisMissing !== undefined)('a database is chosen over a socket too', async () => {
  await using server = await RedisServer.start();
  const [first, second] = [0, 2].map((db) => new RedisLink({ url: `${server.url}?db=${db}`, prefix: 't' }));
  await Promise.all([first?.ready(waitLimitMs), second?.ready(waitLimitMs)]);
  await second?.commands.set('t:x', '1');
  expect(await first?.commands.get('t:x')).toBeNull();
  expect(await second?.waiting().get('t:x')).toBe('1');
  expect(second?.address).toBe(server.socket);
  for (const each of [first, second]) each?.close();
});

test.skipIf(redisMissing !== undefined)('a refusal by a full Redis is reported in its words', async () => {
  await using server = await RedisServer.start();
  const link = new RedisLink({ url: server.url, prefix: 't' });
  await link.ready(waitLimitMs);
  await link.commands.config('SET', 'maxmemory', '1');
  const single: unknown = await link.commands.set('t:x', '1').catch((error: unknown) => error);
  expect(link.failure(single).message).toMatch(/refuses: OOM command not allowed/);
  const joint: unknown = await link.commands
    .multi()
    .set('t:x', '1')
    .exec()
    .catch((error: unknown) => error);
  expect(link.failure(joint).message).toMatch(/refuses: OOM command not allowed/);
  link.close();
});

test.skipIf(redisMissing !== undefined)(
  'a database that the server does not have is not replaced by the first',
  async () => {
    await using server = await RedisServer.start();
    const admin = new RedisLink({ url: server.url, prefix: 'a' });
    await admin.ready(waitLimitMs);
    const probe = createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address() as AddressInfo;
    await new Promise((resolve) => probe.close(resolve));
    await admin.commands.config('SET', 'port', String(port));
    const refused = refusedLink(`redis://127.0.0.1:${port}/99`, /out of range/);
    await expect(refused).rejects.toThrow(/refuses: ERR DB index is out of range/);
    const there = new RedisLink({ url: `redis://127.0.0.1:${port}/3`, prefix: 't' });
    await there.ready(waitLimitMs);
    for (const each of [admin, there]) each.close();
  },
);

test('a host whose Redis is away from the start says so in its log, and stops without waiting for it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-queue-'));
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'redis.url': `unix://${join(folder, 'none.sock')}`,
    },
    environment: {},
  });
  let host: Awaited<ReturnType<typeof startHost>> | undefined;
  const said = await new Promise<string>((resolve, reject) => {
    const logger = pino({
      hooks: {
        logMethod(words) {
          if (String(words[1]).startsWith('Redis is down')) resolve(String(words[1]));
        },
      },
    });
    startHost(config, { logger }).then((started) => (host = started), reject);
  });
  expect(said).toMatch(/^Redis is down: asynchronous calls are refused.*\(.*ENOENT.*\)\.$/);
  // There is nothing to wait for; the drain alone would be 30 s.
  await host?.stop();
  await rm(folder, { recursive: true, force: true });
});

test.skipIf(redisMissing !== undefined)(
  'a host says at its start which settings of Redis can lose accepted calls',
  async () => {
    await using server = await RedisServer.start({ durable: false });
    await server.command('CONFIG SET maxmemory-policy allkeys-lru');
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(server.folder, 'data'),
        functionsDir: join(server.folder, 'functions'),
        'redis.url': server.url,
      },
      environment: {},
    });
    const said: string[] = [];
    const logger = pino({
      hooks: {
        logMethod(words) {
          if (/accepted calls/.test(String(words[1]))) said.push(String(words[1]));
        },
      },
    });
    const host = await startHost(config, { logger });
    await vi.waitUntil(() => said.length === 2);
    expect(said).toEqual([
      'Redis forgets accepted calls when it restarts: set appendonly yes',
      'Redis may throw accepted calls away when its memory is full: set maxmemory-policy noeviction',
    ]);
    await host.stop();
  },
);

test.skipIf(redisMissing !== undefined)('a worker with nothing to do stops while Redis is away', async () => {
  await using server = await RedisServer.start();
  const link = new RedisLink({ url: server.url, prefix: 't' });
  await link.ready(waitLimitMs);
  const worker = await startRemoteWorker({ link, taker: idleTaker, log: silentLog });
  await server.kill();
  expect(await worker.stop(60_000)).toBe(true);
  link.close();
});

test('errors of one kind are logged once in a while, other kinds in between', () => {
  const said: string[] = [];
  const say = errorLog({
    ...silentLog,
    warn: ({ err }: { err?: Error }) => void said.push(err?.message ?? ''),
  });
  for (let tries = 0; tries < 100; tries++)
    say(new Error(`Missing key for job ${tries}`), 'the queue reports an error');
  say(new Error('OOM command not allowed'), 'the queue reports an error');
  expect(said).toEqual(['Missing key for job 0', 'OOM command not allowed']);
});

test.skipIf(redisMissing !== undefined)("deadlines stay the same when this machine's clock is set", async () => {
  await using server = await RedisServer.start();
  const link = new RedisLink({ url: server.url, prefix: 't' });
  await link.ready(waitLimitMs);
  const deadlineMs = performance.now() + 1000;
  const sent = link.toShared(deadlineMs);
  const hourMs = 3_600_000;
  const now = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + hourMs);
  expect(link.toShared(deadlineMs)).toBeCloseTo(sent, 3);
  expect(link.fromShared(sent)).toBeCloseTo(deadlineMs, 3);
  now.mockRestore();
  link.close();
});
