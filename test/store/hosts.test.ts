/** Hosts that share a store, without Redis and without a fleet: what each publishes, the others serve. */
import { mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { ask, call, patient, publish, shaOf, shown, untilPublished } from '../support/fleet-calls.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { S3Server, s3Keys } from '../support/s3-server.ts';

let folder: string;
let hosts: ReluHost[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-sharing-'));
  hosts = [];
});
afterEach(async () => {
  for (const host of hosts) await host[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});
beforeAll(() => {
  vi.stubEnv('AWS_ACCESS_KEY_ID', s3Keys.accessKeyId);
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', s3Keys.secretAccessKey);
});
afterAll(() => vi.unstubAllEnvs());

async function start(place: string, flags: Record<string, string> = {}): Promise<ReluHost> {
  const host = await startReluHost([], {
    flags: { 'store.place': place, 'cpu.cores': '1', 'cpu.profiling': 'off', 'gpu.use': 'off', ...flags },
  });
  hosts.push(host);
  return host;
}

async function stop(host: ReluHost): Promise<void> {
  hosts.splice(hosts.indexOf(host), 1);
  await host[Symbol.asyncDispose]();
}

const times = (factor: number): number[] => [1, 2, 3, 4].map((value) => value * factor);

describe.each(['folder', 'bucket'] as const)('hosts with one %s', (kind) => {
  let s3: S3Server;
  let place: string;
  beforeEach(async () => {
    s3 = await S3Server.start();
    place = kind === 'bucket' ? s3.url : join(folder, 'store');
  });
  afterEach(async () => {
    await s3[Symbol.asyncDispose]();
  });
  test('publications, settings, traffic and removals of one show at the other, and a new host starts with all', async () => {
    const [one, other] = [await start(place), await start(place)];
    await untilPublished(one, 'BERT', 2);
    await untilPublished(other, 'bert', 3);
    expect(await call(other, 'BERT')).toEqual(times(2));
    expect(await call(one, 'bert')).toEqual(times(3));
    expect((await publish(one, 'BERT', 5, 'traffic=0')).status).toBe(201);
    // It has looked the name up a moment ago, but not this version.
    expect(await call(other, 'BERT/versions/2')).toEqual(times(5));
    expect(await shown(other, 'BERT')).toMatchObject({ versions: ['1', '2'] });
    expect(await call(one, 'BERT')).toEqual(times(2));
    await ask(one, 'POST', '/functions/BERT/versions/2/promote');
    expect((await ask(one, 'PATCH', '/functions/BERT', '{"slo": "77ms"}')).status).toBe(200);
    await vi.waitFor(async () => {
      expect(await call(other, 'BERT')).toEqual(times(5));
      expect(await shown(other, 'BERT')).toMatchObject({ slo: '77ms' });
    }, patient);
    expect((await ask(other, 'DELETE', '/functions/BERT/versions/1')).status).toBe(204);
    expect((await ask(other, 'DELETE', '/functions/bert')).status).toBe(204);
    await vi.waitFor(async () => {
      expect(await shown(one, 'BERT')).toMatchObject({ versions: ['2'] });
      expect(await shown(one, 'bert')).toBeUndefined();
    }, patient);
    const third = await start(place);
    expect(await call(third, 'BERT')).toEqual(times(5));
    expect(await shown(third, 'bert')).toBeUndefined();
  });

  test('over its budget a host drops what is idle, and fetches it again for a call', async () => {
    const host = await start(place, { 'store.cache': '1B' });
    await untilPublished(host, 'behind', 7);
    const blob = `/blobs/sha256:${await shaOf(7)}`;
    await vi.waitFor(async () => expect((await ask(host, 'HEAD', blob)).status).toBe(404), patient);
    await vi.waitFor(async () => {
      const { text } = await ask(host, 'GET', '/metrics');
      expect(Number(/^turntable_store_dropped_total (\d+)$/m.exec(text)?.[1])).toBeGreaterThan(0);
    }, patient);
    expect(await call(host, 'behind')).toEqual(times(7));
  });
});

/** @param away makes the store unreachable, and returns what brings it back @returns what its host then shows of 'kept' */
async function servesOnWithout(place: string, away: () => Promise<() => Promise<void>>): Promise<unknown> {
  const dataDir = join(folder, 'data');
  const first = await start(place, { dataDir });
  await untilPublished(first, 'kept', 2);
  expect(await call(first, 'kept')).toEqual(times(2));
  await stop(first);
  const back = await away();
  const again = await start(place, { dataDir });
  expect(await call(again, 'kept')).toEqual(times(2));
  await vi.waitFor(async () => {
    expect((await ask(again, 'GET', '/metrics')).text).toContain('turntable_dependency_up{dependency="store"} 0');
  }, patient);
  expect((await ask(again, 'GET', '/api/trouble')).text).toContain('The store of functions is away since');
  const refused = await publish(again, 'late', 3);
  expect([refused.status, refused.headers['x-turntable-error']]).toEqual([503, 'store-unavailable']);
  expect(refused.text).toContain('what is published goes on serving');
  expect((await ask(again, 'DELETE', '/functions/kept')).status).toBe(503);
  await back();
  expect((await publish(again, 'late', 3)).status).toBe(201);
  expect(await call(again, 'late')).toEqual(times(3));
  return await shown(again, 'kept');
}

test('a host serves on while its bucket is away, also after a restart, and nothing can be published', async () => {
  await using s3 = await S3Server.start();
  const kept = await servesOnWithout(s3.url, async () => {
    await s3.stop();
    return async () => await s3.restart();
  });
  expect(kept).toMatchObject({ versions: ['1'] });
});

test("a host serves on while its store's disk is not mounted, and an empty folder in its place removes nothing", async () => {
  const place = join(folder, 'store');
  const kept = await servesOnWithout(place, async () => {
    await rename(place, `${place}-away`);
    return async () => {
      await rm(place, { recursive: true, force: true });
      await rename(`${place}-away`, place);
    };
  });
  expect(kept).toMatchObject({ versions: ['1'] });
});

test('a host does not start on a bucket that ignores the conditions of writes', async () => {
  await using s3 = await S3Server.start();
  s3.ignores = ['if-none-match'];
  await expect(start(s3.url)).rejects.toThrow('ignores If-None-Match of a write');
});

test('a host whose data folder has functions of its own does not start until the store has them, and drops nothing', async () => {
  const dataDir = join(folder, 'data');
  const alone = await startReluHost([], { flags: { dataDir, 'gpu.use': 'off' } });
  await untilPublished(alone, 'own', 2);
  await alone[Symbol.asyncDispose]();
  const place = join(folder, 'store');
  await expect(start(place, { dataDir })).rejects.toThrow(/functions that .* does not have \('own'\).*store import/);
  const blob = join(dataDir, 'blobs', 'sha256', await shaOf(2));
  expect((await stat(blob)).size).toBeGreaterThan(0);
  expect(await readdir(join(dataDir, 'functions', 'own'))).toEqual(['1']);
});
