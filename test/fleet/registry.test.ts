/** The registry of a fleet against a real Redis that forgets: nothing acknowledged is lost or doubled. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { Registry, RegistryCopy } from '../../src/fleet/index.ts';
import { ChangedElsewhere } from '../../src/store/index.ts';
import { Seal } from '../../src/fleet/seal.ts';
import { RedisLink } from '../../src/queue/redis.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { silentLog } from '../support/silent-log.ts';
import { waitLimitMs } from '../time-limits.ts';

interface Host {
  readonly registry: Registry;
  readonly link: RedisLink;
  /** Functions of the host itself. */
  readonly own: Map<string, string[]>;
  readonly changed: string[];
  readonly body: (name: string) => unknown;
  /** What the store does with a change. */
  adopt: () => Promise<void>;
  /** Whether the others notify it of their changes, as they do if it answers them. */
  isTold: boolean;
}

describe.skipIf(redisMissing !== undefined)('the registry', () => {
  let redis: RedisServer;
  let folder: string;
  let count = 0;
  let one: Host;
  let other: Host;
  const hosts: Host[] = [];

  async function host(): Promise<Host> {
    const link = new RedisLink({ url: redis.url, prefix: 'turntable' });
    await link.ready(waitLimitMs);
    const copy = new RegistryCopy(join(folder, String(count++)));
    await copy.start();
    const own = new Map<string, string[]>();
    const changed: string[] = [];
    const registry = new Registry({
      link,
      fleet: 'lab',
      seal: new Seal('lab', 'a secret of the fleet'),
      copy,
      ownNames: () => [...own.keys()],
      own: (name) => own.get(name),
      onChanged: async (name) => {
        changed.push(name);
        await made.adopt();
      },
      merge: (_name, mine, theirs) => [
        ...new Set([...((theirs as string[] | undefined) ?? []), ...((mine as string[] | undefined) ?? [])]),
      ],
      tell: async (name, sealed) => {
        for (const each of hosts) if (each.registry !== registry && each.isTold) await each.registry.hear(name, sealed);
      },
      log: silentLog,
    });
    const body = (name: string): unknown => copy.get(name)?.body;
    const made: Host = { registry, link, own, changed, body, adopt: () => Promise.resolve(), isTold: false };
    hosts.push(made);
    return made;
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-registry-'));
    redis = await RedisServer.start({ durable: true });
  });
  beforeEach(async () => {
    await redis.command('FLUSHALL');
    [one, other] = [await host(), await host()];
    await Promise.all([one.registry.ready(), other.registry.ready()]);
  });
  afterAll(async () => {
    for (const { registry, link } of hosts) {
      await registry.close();
      link.close();
    }
    await redis?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  const names = ['entries', 'revisions', 'clock', 'log', 'epoch'].map((part) => `turntable:fleet:lab:${part}`);
  const saved = async (): Promise<(Buffer | null)[]> =>
    await Promise.all(names.map(async (name) => await one.link.commands.dumpBuffer(name)));
  /** Restores an old state of Redis: everything acknowledged since is lost. */
  async function rollBack(values: readonly (Buffer | null)[]): Promise<void> {
    for (const [index, value] of values.entries()) {
      await one.link.commands.del(names[index]!);
      if (value !== null) await one.link.commands.restore(names[index]!, 0, value);
    }
  }

  test('a change is accepted once: a host with an older state is told, and succeeds on the new one', async () => {
    await one.registry.put('f', ['1']);
    await expect(other.registry.put('f', ['2'])).rejects.toThrow(ChangedElsewhere);
    await other.registry.sync();
    expect(other.body('f')).toEqual(['1']);
    await other.registry.put('f', ['1', '2']);
    await one.registry.sync();
    expect(one.body('f')).toEqual(['1', '2']);
    expect([one.changed, other.changed]).toEqual([['f'], ['f']]);
  });

  test('the others have heard of a change when it is acknowledged, before they ask Redis', async () => {
    other.isTold = true;
    await one.registry.put('f', ['1']);
    expect([other.body('f'), other.changed]).toEqual([['1'], ['f']]);
    await one.registry.put('f', undefined);
    expect(other.body('f')).toBeNull();
    await Promise.all([one.registry.sync(), other.registry.sync()]);
    expect([one.body('f'), other.body('f'), other.changed]).toEqual([null, null, ['f', 'f']]);
  });

  test('a change is acknowledged although a newer one by another host waits here until it is', async () => {
    const acknowledged = new AbortController();
    // As the store does, which changes a function under a lock.
    one.adopt = async () => void (await once(acknowledged.signal, 'abort'));
    const { commands } = one.link;
    const written = commands.eval.bind(commands);
    vi.spyOn(commands, 'eval').mockImplementationOnce(async (...script: Parameters<typeof written>) => {
      const taken = await written(...script);
      await other.registry.sync();
      await other.registry.put('f', ['1', '2']);
      void one.registry.look();
      await vi.waitFor(() => expect(one.changed).toEqual(['f']));
      return taken;
    });
    try {
      await one.registry.put('f', ['1']);
    } finally {
      acknowledged.abort();
    }
    expect(one.body('f')).toEqual(['1', '2']);
  });

  test("a change that does not follow a host's state is merged: both are kept", async () => {
    await one.registry.put('f', ['1']);
    await other.registry.sync();
    const before = await saved();
    await one.registry.put('f', ['1', '2']);
    await rollBack(before);
    one.isTold = true;
    await other.registry.put('f', ['1', '3']);
    expect(one.body('f')).toEqual(['1', '2']);
    await one.registry.sync();
    await other.registry.sync();
    for (const { body } of [one, other]) expect((body('f') as string[]).toSorted()).toEqual(['1', '2', '3']);
  });

  test("requests without a signature by the fleet's secret are refused", async () => {
    const sealed = new Seal('lab', 'another secret').sealed('function f', JSON.stringify({ revision: 1, ancestors: [], body: ['1'] })); // prettier-ignore
    expect([await one.registry.hear('f', sealed), one.body('f')]).toEqual([false, undefined]);
  });

  test('an emptied Redis is filled from the hosts, and nothing is doubled', async () => {
    await one.registry.put('f', ['1']);
    await one.registry.put('g', ['1']);
    await other.registry.sync();
    await other.registry.put('g', undefined);
    await one.registry.sync();
    await redis.command('FLUSHALL');
    await Promise.all([one.registry.sync(), other.registry.sync()]);
    await Promise.all([one.registry.sync(), other.registry.sync()]);
    const third = await host();
    await third.registry.ready();
    for (const { body } of [one, other, third]) expect([body('f'), body('g')]).toEqual([['1'], null]);
  });

  test('an entry that Redis acknowledged and lost comes back, even if another host has changed the function since', async () => {
    await one.registry.put('f', ['1']);
    await other.registry.sync();
    const before = await saved();
    await one.registry.put('f', ['1', '2']);
    await rollBack(before);
    // The other host has not heard of version 2, and makes two changes before the first comes back.
    await other.registry.put('f', ['1', '3']);
    await other.registry.put('f', ['1', '3', '4']);
    await one.registry.sync();
    await other.registry.sync();
    for (const { body } of [one, other]) expect(body('f')).toEqual(['1', '3', '4', '2']);
  });

  test("a host's own versions are added to the fleet's under the same name", async () => {
    await one.registry.put('f', ['1']);
    const third = await host();
    third.own.set('f', ['2']).set('g', ['1']);
    await third.registry.ready();
    await one.registry.sync();
    for (const { body } of [one, third]) expect([body('f'), body('g')]).toEqual([['1', '2'], ['1']]);
  });

  test('a key of another type in Redis is reported, and read once', async () => {
    const third = await host();
    await redis.command('DEL turntable:fleet:lab:epoch');
    await redis.command('HSET turntable:fleet:lab:epoch field value');
    await redis.command('CONFIG RESETSTAT');
    await expect(third.registry.ready()).rejects.toThrow(/WRONGTYPE|wrong kind of value/);
    const statistics = await one.link.commands.info('commandstats');
    expect(/cmdstat_mget:calls=(\d+)/.exec(statistics)?.[1]).toBe('1');
  });

  test('an entry written without the secret does not count', async () => {
    await one.registry.put('f', ['1']);
    await other.registry.sync();
    await one.link.commands.hset(names[0]!, 'f', 'forged');
    await one.link.commands.hset(names[1]!, 'f', '9:forged');
    await redis.command('DEL turntable:fleet:lab:epoch');
    await other.registry.sync();
    expect(other.body('f')).toEqual(['1']);
    await other.registry.put('f', ['1', '2']);
    await one.registry.sync();
    expect(one.body('f')).toEqual(['1', '2']);
  });
});
