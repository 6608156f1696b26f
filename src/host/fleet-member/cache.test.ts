/** What a host drops of its content: nothing that others rely on, and the least recently used first. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { VersionRecord } from '../store/index.ts';
import { bytesOf, ContentCache, type ContentCacheOptions, type HeldContent } from './cache.ts';
import { silentLog } from '../../../test/support/silent-log.ts';

const minuteMs = 60_000;

function record(name: string, bytes = 1, sha256 = name): VersionRecord {
  return {
    format: 1,
    name,
    version: '1',
    sequence: 1,
    publishedAtMs: 0,
    settings: {},
    files: [{ name: 'model.onnx', sha256, bytes }],
    metadata: { inputs: [], outputs: [] } as unknown as VersionRecord['metadata'],
  };
}

/** A single host; every other one has everything. */
function cacheOf(held: Map<string, HeldContent>, options: Partial<ContentCacheOptions>): ContentCache {
  return new ContentCache({
    bytesMax: 0,
    held: () => [...held.values()],
    holds: ({ name }) => held.has(name),
    isKeeper: () => false,
    isInBucket: async () => await Promise.resolve(false),
    holders: () => ['b', 'c'],
    ask: async () => await Promise.resolve(true),
    drop: async ({ name }) => {
      held.delete(name);
      await Promise.resolve();
    },
    log: silentLog,
    ...options,
  });
}

test('hosts that drop at the same time leave two copies of everything, whatever each believes about the others', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(fc.uniqueArray(fc.nat(4), { minLength: 2 }), { minLength: 1, maxLength: 4 }),
      fc.array(fc.nat(3 * minuteMs), { minLength: 1, maxLength: 4 }),
      async (scheduler, placed, pausesMs) => {
        let nowMs = 0;
        const hosts = Array.from({ length: 5 }, () => new Set<string>());
        for (const [index, at] of placed.entries()) for (const host of at) hosts[host]!.add(`f${index}`);
        const copiesOf = (name: string): number => hosts.filter((held) => held.has(name)).length;
        const caches: ContentCache[] = hosts.map((held, self) => {
          const others = [...hosts.keys()].filter((host) => host !== self);
          return cacheOf(new Map(), {
            now: () => nowMs,
            held: () => Array.from(held, (name) => ({ record: record(name), idleMs: Infinity })),
            holds: ({ name }) => held.has(name),
            holders: () => others.map(String),
            ask: async (host, content) => {
              await scheduler.schedule(Promise.resolve(), 'the question is on its way');
              const has = caches[Number(host)]!.has(content);
              await scheduler.schedule(Promise.resolve(), 'the answer is on its way');
              return has;
            },
            drop: async ({ name }) => {
              await scheduler.schedule(Promise.resolve(), 'the files are being removed');
              held.delete(name);
              expect(copiesOf(name)).toBeGreaterThanOrEqual(2);
            },
          });
        });
        for (const pauseMs of pausesMs) {
          await scheduler.waitFor(Promise.all(caches.map(async (cache) => await cache.shrink())));
          nowMs += pauseMs;
        }
        for (const index of placed.keys()) expect(copiesOf(`f${index}`)).toBeGreaterThanOrEqual(2);
      },
    ),
  );
});

test('of four copies the two that are not at keepers are dropped', async () => {
  const hosts = Array.from({ length: 4 }, () => new Map([['f', { record: record('f'), idleMs: Infinity }]]));
  const caches: ContentCache[] = hosts.map((held, self) =>
    cacheOf(held, {
      isKeeper: () => self < 2,
      holders: () => ['0', '1', '2', '3'].filter((host) => host !== String(self)),
      ask: async (host, content) => await Promise.resolve(caches[Number(host)]!.has(content)),
    }),
  );
  await Promise.all(caches.map(async (cache) => await cache.shrink()));
  expect(hosts.map(({ size }) => size)).toEqual([1, 1, 0, 0]);
  for (const cache of caches) await cache.close();
});

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
      const held = new Map<string, HeldContent>(all.map((each) => [each.record.name, each]));
      const dropped: typeof all = [];
      const cache = cacheOf(held, {
        bytesMax,
        ask: async (_host, { name }) => await Promise.resolve(all.find((each) => each.record.name === name)!.isSafe),
        drop: async ({ name }) => {
          expect(bytesOf([...held.values()].flatMap((each) => each.record.files))).toBeGreaterThan(bytesMax);
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
  const held = new Map<string, HeldContent>(
    ['a', 'b', 'c'].map((name) => [name, { record: record(name, 100, 'the same'), idleMs: Infinity }]),
  );
  const cache = cacheOf(held, { bytesMax: 100 });
  await cache.shrink();
  expect([cache.bytes, held.size]).toEqual([100, 3]);
});

test('a keeper too drops content that is in the bucket; files that another host publishes stay', async () => {
  const held = new Map<string, HeldContent>([
    ['kept', { record: record('kept'), idleMs: Infinity }],
    ['free', { record: record('free'), idleMs: Infinity }],
  ]);
  const cache = cacheOf(held, { isKeeper: () => true, isInBucket: async () => await Promise.resolve(true) });
  await cache.keepFor(record('kept').files);
  await cache.shrink();
  await cache.close();
  expect([...held.keys()]).toEqual(['kept']);
});
