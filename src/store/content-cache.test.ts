/** What a cache drops of its content: nothing that the store lacks, and the least recently used first. */
import { EventEmitter, once } from 'node:events';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ContentCache, type ContentCacheOptions } from './content-cache.ts';
import type { Store } from './store.ts';
import { silentLog } from '../../test/support/silent-log.ts';

const minuteMs = 60_000;

interface Item {
  readonly name: string;
  readonly sha256: string;
  readonly bytes: number;
}

const record = (name: string, bytes = 1, sha256 = name): Item => ({ name, sha256, bytes });

interface Held {
  readonly record: Item;
  readonly idleMs: number;
}

const bytesOf = (held: Iterable<Held>): number => [...held].reduce((sum, each) => sum + each.record.bytes, 0);

/** @param has whether the store has a file, by its hash */
const storeOf = (has: (sha256: string) => boolean): Store =>
  ({
    has: async ({ sha256 }: { sha256: string }) => await Promise.resolve(has(sha256)),
    source: () => undefined,
  }) as unknown as Store;

function cacheOf(held: Map<string, Held>, options: Partial<ContentCacheOptions<Item>>): ContentCache<Item> {
  return new ContentCache<Item>({
    store: storeOf(() => true),
    bytesMax: 0,
    staysMs: minuteMs,
    keyOf: ({ name }) => name,
    filesOf: ({ sha256, bytes }) => [{ name: 'model.onnx', sha256, bytes }],
    nameOf: ({ name }) => name,
    idleMs: ({ name }) => held.get(name)?.idleMs ?? Infinity,
    held: () => [...held.values()].map((each) => each.record),
    isMissing: () => true,
    hold: async () => await Promise.resolve(),
    drop: async ({ name }) => {
      held.delete(name);
      await Promise.resolve();
    },
    log: silentLog,
    ...options,
  });
}

test('the least recently used goes first, no more than the budget requires, and nothing in use', async () => {
  const versions = fc.array(fc.record({ bytes: fc.nat(100), idleMs: fc.nat(5 * minuteMs), isSafe: fc.boolean() }), {
    maxLength: 12,
  });
  await fc.assert(
    fc.asyncProperty(versions, fc.nat(600), async (given, bytesMax) => {
      const all = given.map(({ bytes, idleMs, isSafe }, index) => ({
        record: record(`f${index}`, bytes),
        idleMs: idleMs + index / 100,
        isSafe,
      }));
      const held = new Map<string, Held>(all.map((each) => [each.record.name, each]));
      const dropped: typeof all = [];
      const cache = cacheOf(held, {
        bytesMax,
        store: storeOf((sha256) => all.find((each) => each.record.name === sha256)!.isSafe),
        drop: async ({ name }) => {
          expect(bytesOf(held.values())).toBeGreaterThan(bytesMax);
          held.delete(name);
          dropped.push(all.find((each) => each.record.name === name)!);
          await Promise.resolve();
        },
      });
      await cache.shrink();
      await cache.close();
      const droppable = all
        .filter(({ idleMs, isSafe }) => isSafe && idleMs >= minuteMs)
        .toSorted((a, b) => b.idleMs - a.idleMs);
      expect(dropped).toEqual(droppable.slice(0, dropped.length));
      expect(cache.bytes <= bytesMax || dropped.length === droppable.length).toBe(true);
    }),
  );
});

test('files shared by several versions count once, and nothing is dropped within the budget', async () => {
  const held = new Map<string, Held>(
    ['a', 'b', 'c'].map((name) => [name, { record: record(name, 100, 'the same'), idleMs: Infinity }]),
  );
  const cache = cacheOf(held, { bytesMax: 100 });
  await cache.shrink();
  expect([cache.bytes, held.size]).toEqual([100, 3]);
});

test('what the store does not have stays, and what is fetched for a caller is tried again until it comes', async () => {
  const held = new Map<string, Held>([['f', { record: record('f'), idleMs: Infinity }]]);
  const alone = cacheOf(held, { store: storeOf(() => false) });
  await alone.shrink();
  await alone.close();
  expect([...held.keys()]).toEqual(['f']);

  let tries = 0;
  const arrived = new EventEmitter();
  const cache = cacheOf(new Map(), {
    hold: async () => {
      if (tries++ === 0) throw new Error('the store is away');
      arrived.emit('held');
      await Promise.resolve();
    },
  });
  const there = once(arrived, 'held');
  cache.want(record('g'));
  await there;
  await cache.close();
  expect(tries).toBe(2);
});

test('callers that come while an item is fetched share the fetch, and each is told how it ended', async () => {
  let tries = 0;
  const events = new EventEmitter();
  const gate = once(events, 'go');
  const cache = cacheOf(new Map(), {
    bytesMax: undefined,
    hold: async () => {
      await gate;
      if (tries++ === 0) throw new Error('the store is away');
    },
  });
  const callers = [cache.bring(record('f')), cache.bring(record('f')), cache.bring(record('f'))];
  const told = Promise.allSettled(callers);
  events.emit('go');
  expect((await told).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  expect(tries).toBe(1);
  expect(cache.isFailing(record('f'))).toBe(true);
  await cache.bring(record('f')); // The next try.
  expect([tries, cache.isFailing(record('f'))]).toEqual([2, false]);
  await cache.close();
});

test('what nobody waits for is fetched only if there is room, and one at a time', async () => {
  const begun: string[] = [];
  const events = new EventEmitter();
  const cache = cacheOf(new Map(), {
    bytesMax: 20,
    hold: async ({ name }) => {
      begun.push(name);
      if (begun.length <= 2) await once(events, 'go');
      else events.emit('third');
    },
  });
  for (const name of ['a', 'b', 'large']) cache.want(record(name, name === 'large' ? 11 : 10), true);
  const waiting = cache.bring(record('c', 10));
  await cache.shrink(); // Behind those that the fetches begin with.
  expect(begun).toEqual(['a', 'c']);
  const third = once(events, 'third');
  events.emit('go');
  await Promise.all([waiting, third]);
  await cache.close();
  expect(begun).toEqual(['a', 'c', 'b']);
});

test('a version that was removed meanwhile is not fetched again', async () => {
  let tries = 0;
  const failed = new EventEmitter();
  const cache = cacheOf(new Map(), {
    isMissing: () => false,
    hold: async () => {
      tries++;
      failed.emit('tried');
      await Promise.reject(new Error('its record has changed'));
    },
  });
  for (let round = 1; round <= 2; round++) {
    const tried = once(failed, 'tried');
    cache.want(record('f'));
    await tried;
    expect(tries).toBe(round);
  }
  await cache.close();
});

test('a version that was published again with other files, while the old ones were fetched, is fetched as it is now', async () => {
  const fetched: string[] = [];
  const events = new EventEmitter();
  const gate = once(events, 'go');
  const cache = cacheOf(new Map(), {
    hold: async ({ sha256 }) => {
      fetched.push(sha256);
      if (fetched.length === 1) await gate;
      else events.emit('second');
    },
  });
  cache.want(record('f', 1, 'old'));
  cache.want(record('f', 1, 'new'));
  const second = once(events, 'second');
  events.emit('go');
  await second;
  await cache.close();
  expect(fetched).toEqual(['old', 'new']);
});
