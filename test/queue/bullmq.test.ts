import { EventEmitter, once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { keys, workerQueue } from '../../src/queue/names.ts';
import { sealManifest, type FunctionManifest, type RemoteTaker, type RemoteWorker } from '../../src/queue/index.ts';
import { OverflowQueue, RedisLink, startRemoteWorker } from '../../src/queue/redis.ts';
import { BreakableWay } from '../support/breakable-way.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { overflowQueueConformance, ScriptedTaker, tensorInput, type QueueUnderTest } from './conformance.ts';
import { silentLog } from '../support/silent-log.ts';
import { memberWith } from '../support/test-member.ts';
import { waitLimitMs } from '../time-limits.ts';

const manifest: FunctionManifest = sealManifest({
  key: 'f@1',
  files: [{ name: 'model.onnx', sha256: 'ab'.repeat(32), bytes: 10 }],
  limits: { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1, loadTimeoutMs: 1, inferTimeoutMs: 1 },
});

/** The takers of the conformance suite know the function by its name; workers know it by its revision. */
function remote(taker: ScriptedTaker): RemoteTaker {
  return {
    name: taker.name,
    cores: taker.cores,
    cacheBytes: 0,
    cacheBytesMax: 0,
    held: 1,
    offer: () => taker.offer('f@1'),
    work: () => taker.work(),
    run: (_revision, input, options) => taker.run('f@1', input, options),
    revisions: () => [manifest.revision],
    learn: () => undefined,
    refresh: () => {
      if (taker.mute) throw new Error('mute');
    },
  };
}

let count = 0;

const asUser = (url: string, user: string): string => (user === '' ? url : url.replace('://', `://${user}@localhost`));

interface Made extends QueueUnderTest {
  readonly workers: RemoteWorker[];
  readonly link: RedisLink;
  readonly workerLink: RedisLink;
}

/** Timers that only the test lets ring: a call's last instant here comes when its worker is as the test wants it. */
function heldTimers(): (() => void)[] {
  const timers: (() => void)[] = [];
  const real = globalThis.setTimeout;
  const held = ((run: () => void, ms?: number, ...rest: []) => {
    if (ms === undefined || ms < 1e8) return real(run, ms, ...rest);
    timers.push(run);
    return undefined;
  }) as typeof setTimeout;
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(held);
  return timers;
}

const whenAsked = (wouldBeInTime: () => boolean) => ({ takeBack: { atMs: performance.now() + 1e9, wouldBeInTime } });

describe.skipIf(redisMissing !== undefined)('the overflow queue on Redis', () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await RedisServer.start();
  });

  afterAll(async () => {
    await server?.[Symbol.asyncDispose]();
  });

  afterEach(() => {
    vi.restoreAllMocks();
  });

  async function make(
    takers: readonly ScriptedTaker[],
    {
      outstandingMax = 1000,
      payloadBytesMax = 1e6,
      user = '',
      workerUrl = asUser(server.url, user),
      prepare = (_link: RedisLink): void => undefined,
    } = {},
  ): Promise<Made> {
    const prefix = `test${++count}`;
    const url = asUser(server.url, user);
    const [link, workerLink] = [new RedisLink({ url, prefix }), new RedisLink({ url: workerUrl, prefix })];
    await Promise.all([link.ready(waitLimitMs), workerLink.ready(waitLimitMs)]);
    prepare(link);
    const workers: RemoteWorker[] = [];
    for (const taker of takers) {
      workers.push(await startRemoteWorker({ link: workerLink, taker: remote(taker), log: silentLog }));
    }
    const queue = new OverflowQueue({
      link,
      manifestOf: (key) => (key === 'f@1' ? manifest : undefined),
      payloadBytesMax,
      outstandingMax,
      log: silentLog,
    });
    const member = memberWith(link, [manifest]);
    queue.start(member);
    await member.start();
    await vi.waitUntil(() => queue.workers().length >= takers.length, { interval: 10 });
    return {
      queue,
      workers,
      link,
      workerLink,
      [Symbol.asyncDispose]: async () => {
        await queue.stop(0);
        await member.leave();
        await Promise.all(workers.map((worker) => worker.stop(0)));
        link.close();
        workerLink.close();
      },
    };
  }

  overflowQueueConformance((takers, waitingMax) => make(takers, { outstandingMax: waitingMax + takers.length }));

  test('an input over the limit is refused with both sizes', async () => {
    await using made = await make([new ScriptedTaker('one')], { payloadBytesMax: 16 });
    await expect(made.queue.submit('f@1', tensorInput(1, 2, 3, 4, 5))).rejects.toMatchObject({
      code: 'payload-too-large',
      message: expect.stringMatching(/20 bytes.*16 bytes/) as string,
    });
  });

  test('a worker that vanishes with an invocation: another answers it, and its own answer is dropped', async () => {
    const [dying, living] = [new ScriptedTaker('dying'), new ScriptedTaker('living')];
    dying.callMs = 1;
    living.callMs = 50;
    living.auto = true;
    await using made = await make([dying, living]);
    const submitted = made.queue.submit('f@1', tensorInput(7));
    const taken = await dying.nth(1);
    dying.mute = true;
    const { worker: name } = await submitted;
    expect(name).toBe('living');
    taken.answer();
    await vi.waitUntil(() => made.queue.state().lateAnswers > 0, { interval: 10 });
    expect(made.queue.state()).toMatchObject({ movedElsewhere: 1, lateAnswers: 1, answered: { living: 1 } });
  });

  test('a call that waits at a worker is taken back when the host must begin, and no worker runs it', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker]);
    const timers = heldTimers();
    // So many a worker takes at once.
    const taken = Array.from({ length: 4 }, (_, index) => made.queue.submit('f@1', tensorInput(index)));
    await taker.nth(4);
    const stays = made.queue.submit(
      'f@1',
      tensorInput(4),
      whenAsked(() => false),
    );
    const goes = made.queue
      .submit(
        'f@1',
        tensorInput(5),
        whenAsked(() => true),
      )
      .catch((error: unknown) => error);
    const line = `${keys.bull(made.link)}:${workerQueue(made.queue.workers()[0]!.name)}:wait`;
    await vi.waitUntil(async () => (await made.link.commands.llen(line)) >= 2, { interval: 10 });
    for (const ring of timers) ring();
    expect(await goes).toMatchObject({ name: 'QueueError', code: 'taken-back' });
    taker.auto = true;
    for (const each of taker.taken) each.answer();
    await Promise.all([...taken, stays]);
    expect(taker.taken).toHaveLength(5);
    expect(made.queue.state()).toMatchObject({ takenBack: 1, doubleRuns: 0, lateAnswers: 0, answered: { one: 5 } });
  });

  test('of calls that a worker has begun, at most one in fifty is taken back and so may run twice', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker]);
    const timers = heldTimers();
    const first = made.queue.submit(
      'f@1',
      tensorInput(1),
      whenAsked(() => true),
    );
    await taker.nth(1);
    taker.auto = true;
    for (let index = 0; index < 49; index++) await made.queue.submit('f@1', tensorInput(index));
    timers[0]!();
    await made.link.commands.ping(); // Behind the question what its job is doing.
    taker.taken[0]!.answer();
    await first;
    expect(made.queue.state()).toMatchObject({ takenBack: 0, doubleRuns: 0, answered: { one: 50 } });
    taker.auto = false;
    const second = made.queue
      .submit(
        'f@1',
        tensorInput(1),
        whenAsked(() => true),
      )
      .catch((error: unknown) => error);
    await taker.nth(51);
    timers[1]!();
    expect(await second).toMatchObject({ code: 'taken-back' });
    expect(made.queue.state()).toMatchObject({ takenBack: 1, doubleRuns: 1 });
    taker.taken.at(-1)!.answer();
    await vi.waitUntil(() => made.queue.state().lateAnswers > 0, { interval: 10 });
  });

  test('an answer that a busy host reads late does not count as lost', async () => {
    const host = new EventEmitter();
    const mayRead = once(host, 'reads');
    const taker = new ScriptedTaker('one');
    await using made = await make([taker], {
      prepare: (link) => {
        const { commands } = link;
        const [waiting, pipeline] = [link.waiting.bind(link), commands.pipeline.bind(commands)];
        link.waiting = () => {
          const connection = waiting();
          const pop = connection.blpopBuffer.bind(connection) as (list: string, s: number) => Promise<[Buffer, Buffer]>;
          connection.blpopBuffer = (async (list: string, s: number) => {
            await mayRead;
            return await pop(list, s);
          }) as typeof connection.blpopBuffer;
          return connection;
        };
        commands.pipeline = () => {
          host.emit('looks');
          return pipeline();
        };
      },
    });
    const submitted = made.queue.submit('f@1', tensorInput(3));
    (await taker.nth(1)).answer();
    await vi.waitUntil(() => made.workers[0]?.answered === 1, { interval: 10 });
    for (let looks = 0; looks < 4; looks++) await once(host, 'looks');
    host.emit('reads');
    expect((await submitted).worker).toBe('one');
    expect(made.queue.state()).toMatchObject({ movedElsewhere: 0, lateAnswers: 0, answered: { one: 1 } });
  });

  test('an answer that comes while the connections of its worker are broken is delivered when they are back', async () => {
    const taker = new ScriptedTaker('one');
    await using way = await BreakableWay.open(join(server.folder, 'way.sock'), server.socket);
    await using made = await make([taker], { workerUrl: `unix://${join(server.folder, 'way.sock')}` });
    const submitted = made.queue.submit('f@1', tensorInput(5));
    const taken = await taker.nth(1);
    way.break();
    taken.answer();
    expect((await submitted).worker).toBe('one');
  });

  test('an invocation lost by Redis while its worker lives is returned, and others go on', async () => {
    const taker = new ScriptedTaker('one');
    taker.slots = 1;
    await using made = await make([taker]);
    // As many as the worker takes at once, and one that waits.
    const submitted = Array.from({ length: 5 }, (_, index) => made.queue.submit('f@1', tensorInput(index)));
    const outcomes = Promise.allSettled(submitted);
    await taker.nth(4);
    const { commands } = made.link;
    const lost = await commands.keys(made.link.key('input', '*'));
    expect(lost).toHaveLength(5);
    await commands.del(...lost);
    expect((await outcomes).map((outcome) => outcome.status)).toEqual(lost.map(() => 'rejected'));
    expect(await submitted[0]?.catch((error: unknown) => error)).toMatchObject({ code: 'worker-gone' });
    for (const taken of taker.taken) taken.answer();
    taker.auto = true;
    expect((await made.queue.submit('f@1', tensorInput(9))).worker).toBe('one');
  });

  test('an emptied Redis gets the functions again', async () => {
    await using made = await make([]);
    const { commands } = made.link;
    const told = async (kind: 'manifests' | 'member'): Promise<string[]> => {
      const keys = (): Promise<string[]> => commands.keys(made.link.key(kind, '*'));
      await vi.waitUntil(async () => (await keys()).length > 0, { interval: 10 });
      return await keys();
    };
    await told('manifests');
    await commands.flushall();
    await told('manifests');
    // Reports are written by a clock of their own.
    expect(await told('member')).toHaveLength(1);
  });

  test('a worker that stops finishes running calls and returns those in its queue', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker]);
    const submitted = Array.from({ length: 8 }, (_, index) => made.queue.submit('f@1', tensorInput(index)));
    const outcomes = Promise.allSettled(submitted);
    await taker.nth(4);
    const stopped = made.workers[0]?.stop(10_000);
    taker.auto = true;
    for (const taken of taker.taken) taken.answer();
    expect(await stopped).toBe(true);
    const done = await outcomes;
    const answered = done.filter(({ status }) => status === 'fulfilled').length;
    expect(answered).toBeGreaterThanOrEqual(4);
    const refused = done.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []));
    expect(refused).toEqual(refused.map(() => expect.objectContaining({ code: 'worker-gone' }) as unknown));
    expect(await made.link.commands.exists(made.link.key('member', made.workers[0]?.id ?? ''))).toBe(0);
  });

  test('the rights that docs/fleet.md gives a user of Redis are enough, and do not reach other keys', async () => {
    const page = await readFile(join(packageRoot, 'docs', 'fleet.md'), 'utf8');
    const [, rules = ''] = /^ACL SETUSER hosts (.*)$/m.exec(page) ?? [];
    const admin = new RedisLink({ url: server.url, prefix: 'admin' });
    await admin.ready(waitLimitMs);
    const prefix = `test${count + 1}`;
    const own = rules.replace('>PASSWORD', '>secret').replaceAll('turntable:', `${prefix}:`);
    await admin.commands.call('ACL', 'SETUSER', 'hosts', ...own.split(' '));
    const taker = new ScriptedTaker('one');
    taker.auto = true;
    await using made = await make([taker], { user: 'hosts:secret' });
    expect((await made.queue.submit('f@1', tensorInput(1))).worker).toBe('one');
    await expect(made.link.commands.set('another:key', '1')).rejects.toThrow('NOPERM');
    await expect(made.link.commands.flushall()).rejects.toThrow('NOPERM');
    await made.workers[0]?.stop(1000);
    admin.close();
  });

  test('deadlines reach the worker in its own clock', async () => {
    const taker = new ScriptedTaker('one');
    await using made = await make([taker]);
    const deadlineMs = performance.now() + 60_000;
    const submitted = made.queue.submit('f@1', tensorInput(1), { deadlineMs });
    const taken = await taker.nth(1);
    expect(Math.abs((taken.options.deadlineMs ?? 0) - deadlineMs)).toBeLessThan(1000);
    taken.answer();
    await submitted;
  });

  test('Redis keeps nothing of answered invocations', async () => {
    const taker = new ScriptedTaker('one');
    taker.auto = true;
    await using made = await make([taker]);
    await Promise.all(Array.from({ length: 20 }, (_, index) => made.queue.submit('f@1', tensorInput(index))));
    expect(await made.link.commands.keys(made.link.key('input', '*'))).toEqual([]);
    expect(await made.link.commands.keys(made.link.key('answers', '*'))).toEqual([]);
  });
});

describe.skipIf(redisMissing !== undefined)('while Redis is away', () => {
  test('calls at workers are returned at once, and there is no offer; the worker rejoins when Redis is back', async () => {
    await using server = await RedisServer.start();
    const [link, workerLink] = [
      new RedisLink({ url: server.url, prefix: 't' }),
      new RedisLink({ url: server.url, prefix: 't' }),
    ];
    await Promise.all([link.ready(waitLimitMs), workerLink.ready(waitLimitMs)]);
    const taker = new ScriptedTaker('one');
    const worker = await startRemoteWorker({ link: workerLink, taker: remote(taker), log: silentLog });
    const queue = new OverflowQueue({
      link,
      manifestOf: () => manifest,
      payloadBytesMax: 1e6,
      outstandingMax: 10,
      log: silentLog,
    });
    const member = memberWith(link, [manifest]);
    queue.start(member);
    await member.start();
    const joined = (): Promise<unknown> => vi.waitUntil(() => queue.offer('f@1'), { interval: 10 });
    await joined();
    const submitted = queue.submit('f@1', tensorInput(1));
    await taker.nth(1);
    const [outcome] = await Promise.all([Promise.allSettled([submitted]), server.kill()]);
    expect(outcome).toMatchObject([{ status: 'rejected', reason: { name: 'QueueError', code: 'unavailable' } }]);
    expect(queue.offer('f@1')).toBeUndefined();
    await expect(queue.submit('f@1', tensorInput(2))).rejects.toMatchObject({ code: 'unavailable' });

    await server.start();
    await joined();
    taker.auto = true;
    expect((await queue.submit('f@1', tensorInput(3))).worker).toBe('one');
    await queue.stop(0);
    await member.leave();
    await worker.stop(0);
    link.close();
    workerLink.close();
  });
});
