/** A fleet with hosts of two releases: a host of another format is left out by name, and gets no calls. */
import { expect, test, vi } from 'vitest';
import { Fleet, MemberListener, Membership } from '../../src/fleet/index.ts';
import { fleetFormat } from '../../src/fleet/types.ts';
import { RedisLink } from '../../src/queue/redis.ts';
import { call, json, patient, shaOf, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';
import { silentLog } from '../support/silent-log.ts';
import { testReport } from '../support/test-member.ts';
import { waitLimitMs } from '../time-limits.ts';

interface Shown {
  readonly hosts: readonly { name: string; state: string; reason?: string }[];
}

const shownAt = async (host: ReluHost): Promise<Shown['hosts']> => (await json<Shown>(host, '/v2/fleet')).hosts;

const reasonOf = (its: number, own: number): string =>
  `its release has format ${its} between members, and this one format ${own}`;

test.skipIf(redisMissing !== undefined)(
  'a host of another format is shown with the reason at both, and gets no calls',
  async () => {
    await using fleet = await FleetHosts.start(2);
    const [one, other] = fleet.hosts as [ReluHost, ReluHost];
    await untilPublished(one, 'rolled', 2);
    const link = new RedisLink({ url: fleet.redis.url, prefix: 'turntable' });
    await link.ready(waitLimitMs);
    const warned: object[] = [];
    const sha256 = await shaOf(2);
    const url = 'http://127.0.0.1:9';
    const listener = await MemberListener.listen({
      host: '127.0.0.1',
      port: 0,
      tls: undefined,
      connectionsMax: 100,
      stallMs: waitLimitMs,
      greet: (hello) => foreign.greet(hello),
      serve: async (request) => await Promise.resolve(request),
    });
    const foreignName = `127.0.0.1:${listener.port}`;
    const membership: Membership = new Membership({
      link,
      name: foreignName,
      format: fleetFormat + 1,
      report: () => ({ ...testReport, fleet: 'lab', title: foreignName, url, hostVersion: '9.0.0', cores: 1000 }),
      // A host that believed this offer would pass every call on.
      offers: () => [[`rolled@1 ${sha256.slice(0, 12)}`, { ms: 0, isHeld: true, load: 0 }]],
      log: { ...silentLog, warn: (fields) => warned.push(fields) },
    });
    const foreign: Fleet = new Fleet({ fleet: 'lab', membership, listener, tls: undefined, log: silentLog });
    try {
      await membership.start();
      foreign.start();
      await vi.waitFor(async () => {
        expect((await shownAt(one)).find(({ name }) => name === foreignName)).toMatchObject({
          state: 'sick',
          reason: reasonOf(fleetFormat + 1, fleetFormat),
        });
        expect(warned).toContainEqual({
          kind: 'host',
          member: nameOf(one),
          reason: reasonOf(fleetFormat, fleetFormat + 1),
        });
      }, patient);
      expect(foreign.others()).toEqual([]);
      const { homes } = await json<{ homes: string[] }>(one, '/v2/fleet/functions/rolled');
      expect([nameOf(one), nameOf(other)]).toEqual(expect.arrayContaining(homes));
      expect(await call(one, 'rolled')).toEqual([2, 4, 6, 8]);
      await membership.leave();
      await vi.waitFor(async () => expect(await shownAt(one)).toHaveLength(2), patient);
    } finally {
      await membership.leave();
      foreign.close();
      link.close();
    }
  },
);
