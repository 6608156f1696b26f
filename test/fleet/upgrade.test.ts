/** A fleet with hosts of two releases: the protocol versions that they speak, and calls during the upgrade. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Fleet } from '../../src/fleet/index.ts';
import { Seal } from '../../src/fleet/seal.ts';
import { RedisLink } from '../../src/queue/redis.ts';
import { ask, call, json, patient, placed, shaOf, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';
import { silentLog } from '../support/silent-log.ts';
import { waitLimitMs } from '../time-limits.ts';

interface Shown {
  readonly hosts: readonly { name: string; state: string; reason?: string; protocol: number }[];
}

const secret = 'a secret of the fleet';
const shownAt = async (host: ReluHost): Promise<Shown['hosts']> => (await json<Shown>(host, '/v2/fleet')).hosts;
const times = (factor: number): number[] => [1, 2, 3, 4].map((value) => factor * value);
/** Enough that they do not all have the same home. */
const count = 14;

describe.skipIf(redisMissing !== undefined)('a fleet that is upgraded host by host', () => {
  let fleet: FleetHosts;
  let upgraded: ReluHost;
  let old: ReluHost;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-upgrade-'));
    fleet = await FleetHosts.start(0);
    upgraded = await fleet.add();
    old = await fleet.add({ flags: { 'fleet.protocol': '2', dataDir: folder } });
  });
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('hosts talk in the highest version that both speak, and calls pass both ways while one is upgraded', async () => {
    await vi.waitFor(async () => {
      expect((await shownAt(upgraded)).map(({ state, protocol }) => [state, protocol])).toEqual([
        ['up', 3],
        ['up', 2],
      ]);
      expect((await shownAt(old)).map(({ state, protocol }) => [state, protocol])).toEqual([
        ['up', 2],
        ['up', 2],
      ]);
    }, patient);
    for (let index = 0; index < count; index++) {
      const at = index % 2 === 0 ? upgraded : old;
      await untilPublished(at, `rolled-${index}`, index + 2);
    }
    /** Which of the two passed calls to the other one. */
    const passing = async (): Promise<Set<string>> => {
      const from = new Set<string>();
      for (let index = 0; index < count; index++) {
        for (const host of [upgraded, old]) {
          const { answer, placement } = await placed(host, `rolled-${index}`);
          expect(answer).toEqual(times(index + 2));
          if (placement.startsWith('host ')) from.add(nameOf(host));
        }
      }
      return from;
    };
    await vi.waitFor(async () => expect(await passing()).toEqual(new Set([nameOf(upgraded), nameOf(old)])), patient);

    let isOver = false;
    const duringTheRoll = (async () => {
      for (let answered = 0; ; answered++) {
        if (isOver && answered >= count) return answered;
        expect(await call(upgraded, `rolled-${answered % count}`)).toEqual(times((answered % count) + 2));
      }
    })();
    await fleet.stop(old);
    old = await fleet.add({ flags: { dataDir: folder } });
    await vi.waitFor(async () => {
      for (const host of [upgraded, old]) {
        expect((await shownAt(host)).map(({ state, protocol }) => [state, protocol])).toEqual([
          ['up', 3],
          ['up', 3],
        ]);
      }
    }, patient);
    isOver = true;
    expect(await duringTheRoll).toBeGreaterThanOrEqual(count);
    await vi.waitFor(async () => expect(await passing()).toEqual(new Set([nameOf(upgraded), nameOf(old)])), patient);
  });

  test('a host without a common version is shown with the reason at both, and gets no calls', async () => {
    const link = new RedisLink({ url: fleet.redis.url, prefix: 'turntable' });
    await link.ready(waitLimitMs);
    const warned: object[] = [];
    const sha256 = await shaOf(2);
    const foreign = new Fleet({
      link,
      fleet: 'lab',
      secret,
      url: 'http://127.0.0.1:9',
      protocols: [4, 5],
      report: () => ({
        url: 'http://127.0.0.1:9',
        hostVersion: '9.0.0',
        cores: 1000,
        gpus: 0,
        inFlight: 0,
        waiting: 0,
        functions: 0,
      }),
      // A host that believed this offer would pass every call on.
      offers: () => [[`rolled-0@1 ${sha256.slice(0, 12)}`, { ms: 0, isHeld: true, load: 0 }]],
      log: { ...silentLog, warn: (fields) => warned.push(fields) },
    });
    try {
      await foreign.start();
      await vi.waitFor(async () => {
        expect((await shownAt(upgraded)).find(({ name }) => name === '127.0.0.1:9')).toMatchObject({
          state: 'sick',
          reason: 'it speaks version 4 and 5 of the protocol between hosts, and this host version 2 and 3',
        });
        expect(warned).toContainEqual({
          fleet: 'lab',
          host: nameOf(upgraded),
          reason: 'it speaks version 2 and 3 of the protocol between hosts, and this host version 4 and 5',
        });
      }, patient);
      expect(foreign.membership.others()).toEqual([]);
      const { homes } = await json<{ homes: string[] }>(upgraded, '/v2/fleet/functions/rolled-0');
      expect([nameOf(upgraded), nameOf(old)]).toEqual(expect.arrayContaining(homes));
      expect(await call(upgraded, 'rolled-0')).toEqual(times(2));
      const path = '/v2/fleet/ping';
      const seal = new Seal('lab', secret);
      const request = { to: nameOf(upgraded), method: 'GET', path };
      const ping = async (version: string): Promise<Response> => {
        const authorization = seal.authorization('x', request, [], Date.now());
        return await fetch(upgraded.url + path, { headers: { authorization, 'X-Turntable-Protocol': version } });
      };
      expect((await ping('3')).status).toBe(200);
      const refused = await ping('4');
      expect(refused.status).toBe(403);
      expect(await refused.text()).toContain('it is in version 4 of the protocol, and this host speaks 2 and 3');
      await foreign.close();
      await vi.waitFor(async () => expect(await shownAt(upgraded)).toHaveLength(2), patient);
      expect((await ask(upgraded, 'GET', '/v2/fleet')).status).toBe(200);
    } finally {
      await foreign.close();
      link.close();
    }
  });
});
