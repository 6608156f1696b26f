/** Upgrades: hosts are replaced one after the other, and one of another format is left out by name and gets no calls. */
import { expect, test, vi } from 'vitest';
import { Fleet, MemberListener, Membership } from '../../src/fleet/index.ts';
import { fleetFormat } from '../../src/fleet/types.ts';
import { RedisLink } from '../../src/queue/redis.ts';
import { call, json, patient, shaOf, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf, statesAt } from '../support/fleet-hosts.ts';
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

test.skipIf(redisMissing !== undefined)(
  'each host is drained, stopped and started anew, and all calls and publications meanwhile are answered',
  async () => {
    await using fleet = await FleetHosts.start(3);
    const former = [...fleet.hosts];
    const published = ['f1', 'f2'];
    for (const [index, name] of published.entries()) await untilPublished(fleet.hosts[0]!, name, index + 1);
    const wrong: string[] = [];
    const over = new AbortController();
    let answered = 0;
    /** As a balancer: the next host, where one is not there. */
    const callOne = async (count: number): Promise<void> => {
      const name = published[count % published.length]!;
      const factor = Number(name.slice(1));
      const tried: unknown[] = [];
      for (let at = 0; at < fleet.hosts.length; at++) {
        const host = fleet.hosts[(count + at) % fleet.hosts.length]!;
        const answer = await call(host, name).catch((error: unknown) => error);
        if (JSON.stringify(answer) === JSON.stringify([factor, 2 * factor, 3 * factor, 4 * factor])) {
          answered++;
          return;
        }
        tried.push(answer);
      }
      wrong.push(`${name}: ${tried.map(String).join('; ')}`);
    };
    const client = async (from: number): Promise<void> => {
      for (let count = from; !over.signal.aborted; count += 3) await callOne(count);
    };
    const clients = [0, 1, 2].map(client);
    try {
      for (const host of former) {
        const others = fleet.hosts.filter((each) => each !== host);
        await fetch(`${host.url}/v2/fleet/hosts/${encodeURIComponent(nameOf(host))}/drain`, { method: 'POST' });
        await vi.waitFor(async () => {
          for (const other of others) expect(await statesAt(other)).toHaveProperty([nameOf(host)], 'draining');
        }, patient);
        await fleet.stop(host);
        const next = await fleet.add();
        await vi.waitFor(async () => expect(Object.values(await statesAt(next))).toEqual(['up', 'up', 'up']), patient);
        const name = `f${published.length + 1}`;
        await untilPublished(next, name, published.length + 1);
        published.push(name);
        const before = answered;
        await vi.waitFor(() => expect(answered).toBeGreaterThan(before + 20), patient);
      }
    } finally {
      over.abort();
      await Promise.all(clients);
    }
    expect(wrong).toEqual([]);
    for (const host of fleet.hosts) {
      for (const [index, name] of published.entries()) {
        expect(await call(host, name)).toEqual([1, 2, 3, 4].map((value) => value * (index + 1)));
      }
    }
  },
);
