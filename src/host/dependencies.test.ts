import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Dependencies, type DependenciesOptions, type DiskState } from './dependencies.ts';

const wellDisk: DiskState = { totalBytes: 100e9, freeBytes: 50e9, isWritable: true };

async function troubled(options: Partial<DependenciesOptions>, disk: DiskState | undefined, nowMs?: number) {
  const dependencies = new Dependencies({ dataDir: '/data', readDisk: async () => disk, ...options });
  dependencies.close();
  await dependencies.look();
  return dependencies.troubled(nowMs);
}

test('a host with a writable disk, Redis that answers and no worker ever has no trouble', async () => {
  const well = {
    redis: () => ({ status: 'up', sinceMs: 0 }) as const,
    workers: () => ({ taking: 0, waiting: 12 }),
  };
  expect(await troubled(well, wellDisk)).toEqual([]);
  expect(await troubled({}, undefined)).toEqual([]);
});

test('Redis that is down comes first', async () => {
  const found = await troubled(
    { redis: () => ({ status: 'down', sinceMs: 0, reason: 'gone' }) },
    { ...wellDisk, isWritable: false },
  );
  expect(found.map(({ dependency, state }) => `${dependency} ${state}`)).toEqual(['redis down', 'disk read-only']);
  expect(found[1]!.text).toBe('The data folder /data is not writable: nothing can be published or removed.');
});

test('a disk is full below 2% or 1 GiB of it free, whichever is less', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.double({ min: 1e6, max: 1e13, noNaN: true }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      async (totalBytes, share) => {
        const freeBytes = totalBytes * share;
        const found = await troubled({}, { totalBytes, freeBytes, isWritable: true });
        const isFull = freeBytes < 0.02 * totalBytes && freeBytes < 2 ** 30;
        expect(found.map(({ state }) => state)).toEqual(isFull ? ['full'] : []);
      },
    ),
  );
});

test('the disk of a real folder is looked at, and one that is not there is no trouble', async () => {
  const dependencies = new Dependencies({ dataDir: tmpdir() });
  dependencies.close();
  await dependencies.look();
  expect(dependencies.disk).toMatchObject({ isWritable: true });
  const none = new Dependencies({ dataDir: join(tmpdir(), 'no-such-folder-of-turntable') });
  none.close();
  await none.look();
  expect(none.disk).toBeUndefined();
});

test('workers that are gone are trouble while calls wait, and not before or after', async () => {
  let now = { taking: 1, waiting: 3 };
  const dependencies = new Dependencies({ dataDir: '/data', readDisk: async () => wellDisk, workers: () => now });
  dependencies.close();
  expect(dependencies.troubled()).toEqual([]);
  now = { taking: 0, waiting: 3 };
  expect(dependencies.troubled()).toMatchObject([
    { dependency: 'workers', state: 'gone', text: expect.stringMatching(/^No worker answers, and 3 calls wait: /) },
  ]);
  now = { taking: 0, waiting: 0 };
  expect(dependencies.troubled()).toEqual([]);
  now = { taking: 2, waiting: 5 };
  expect(dependencies.troubled()).toEqual([]);
});

test('a certificate is trouble from 14 days before its end', async () => {
  const endMs = Date.parse('2026-11-29T12:00:00Z');
  const dayMs = 86_400_000;
  const said = async (days: number) =>
    (await troubled({ certificates: [() => [{ option: 'listen.tlsCert', endMs }]] }, wellDisk, endMs - days * dayMs))[0]
      ?.text;
  expect(await said(15)).toBeUndefined();
  expect(await said(14)).toBeUndefined();
  expect(await said(13.5)).toMatch(/^The TLS certificate ends in 13 days, on \d{4}-\d\d-\d\d: renew listen\.tlsCert/);
  expect(await said(1.5)).toMatch(/ends in 1 day,/);
  expect(await said(0.5)).toMatch(/ends within a day,/);
  expect(await said(0)).toMatch(/^The TLS certificate ended on .*: clients refuse this host/);
  // Of several the one that ends first is told.
  const ends = [
    { option: 'listen.tlsCert', endMs: endMs + dayMs },
    { option: 'fleet.tlsCa', endMs },
  ];
  const [first] = await troubled({ certificates: [() => ends] }, wellDisk, endMs - 2 * dayMs);
  expect(first?.text).toMatch(/^The fleet's CA ends in 2 days, on 2026-11-29: renew fleet\.tlsCa/);
});
