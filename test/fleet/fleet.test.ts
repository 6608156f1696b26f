/** A fleet of hosts in this process: which hosts may join, and what each knows about the others. */
import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost } from '../../src/host/index.ts';
import {
  ask,
  call,
  functionsAt,
  json,
  patient,
  placed,
  publish,
  shaOf,
  shown,
  untilPublished,
} from '../support/fleet-calls.ts';
import { FleetHosts, fleetOf, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';
import { turntable } from '../cli/command.ts';

/** The error of a host that cannot join with these options. */
async function refusal(flags: Record<string, string>): Promise<string> {
  const environment = { TURNTABLE_API_KEYS: 'a-key-for-the-clients' };
  const { config } = loadConfig({ flags: { 'fleet.name': 'lab', ...flags }, environment });
  return await startHost(config).then(
    () => 'it started',
    (error: unknown) => (error as Error).message,
  );
}

/** Enough that they do not all have the same home. */
const routedCount = 12;

describe.skipIf(redisMissing !== undefined)('a fleet', () => {
  let fleet: FleetHosts;
  let one: ReluHost;
  let other: ReluHost;
  beforeAll(async () => {
    fleet = await FleetHosts.start(2);
    [one, other] = fleet.hosts as [ReluHost, ReluHost];
  });
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]();
  });

  test('each host shows all of them, with the round-trip time', async () => {
    await vi.waitFor(async () => {
      for (const host of [one, other]) {
        expect(await statesAt(host)).toEqual({ [nameOf(one)]: 'up', [nameOf(other)]: 'up' });
        const { hosts, redis, fleet: name } = await fleetOf(host);
        expect([name, redis.status]).toEqual(['lab', 'up']);
        expect(hosts.map(({ self }) => self)).toEqual([true, false]);
        expect(hosts[1]?.round_trip_ms).toBeGreaterThan(0);
      }
    }, patient);
  });

  test('a host drains when `turntable drain` asks any host for it, and takes part again; `ps --fleet` shows both', async () => {
    const at = ['--url', one.url];
    await vi.waitFor(async () => expect(await statesAt(one)).toHaveProperty([nameOf(other)], 'up'), patient);
    for (const [flags, said, state] of [
      [[], 'draining', 'draining'],
      [['--undo'], 'takes part again', 'up'],
    ] as const) {
      const drained = await turntable(['drain', nameOf(other), ...flags, ...at]);
      expect(drained).toEqual({ exitCode: 0, stdout: `${nameOf(other)}: ${said}\n`, stderr: '' });
      await vi.waitFor(async () => {
        expect(await statesAt(one)).toMatchObject({ [nameOf(other)]: state });
        expect(await statesAt(other)).toMatchObject({ [nameOf(other)]: state });
        const { exitCode, stdout } = await turntable(['ps', '--fleet', ...at]);
        const [heading, ...rows] = stdout.trimEnd().split('\n');
        expect([exitCode, heading]).toEqual([0, expect.stringMatching(/^HOST +STATE +CORES .* WAY +HEARD +NOTE$/)]);
        expect(rows.map((row) => row.split(/ +/).slice(0, 3))).toEqual([
          [nameOf(one), 'up', '1'],
          [nameOf(other), state, '1'],
        ]);
        expect(rows[0]).toMatch(/ - +- +this one was asked$/);
        expect(rows[1]).toMatch(/ \d\S* m?s +\d\S* m?s ago$/);
      }, patient);
    }
    const { exitCode, stderr } = await turntable(['drain', 'nobody:1', ...at]);
    expect(exitCode).not.toBe(0);
    expect(stderr).toContain("the fleet 'lab' has no host 'nobody:1'; it has");
  });

  test('a host that stops is removed at the others; one that starts is added', async () => {
    const third = await fleet.add();
    await vi.waitFor(async () => expect(await statesAt(one)).toHaveProperty([nameOf(third)], 'up'), patient);
    await fleet.stop(third);
    await vi.waitFor(async () => expect(await statesAt(one)).not.toHaveProperty([nameOf(third)]), patient);
  });

  test('a publication at one host is listed and answered by each, and its files are in the store', async () => {
    await untilPublished(one, 'double', 2);
    for (const host of [one, other]) {
      await vi.waitFor(async () => expect(await call(host, 'double')).toEqual([2, 4, 6, 8]), patient);
      await vi.waitFor(async () => expect(await shown(host, 'double')).toMatchObject({ versions: ['1'] }), patient);
    }
    const { sha256 } = (await shown(one, 'double')) as { sha256: string };
    await stat(join(fleet.redis.folder, 'store', 'blobs', 'sha256', sha256));
  });

  test('a function answers at each host as soon as its publication is acknowledged at one', async () => {
    const names = Array.from({ length: 12 }, (_, index) => `at-once-${index}`);
    for (const [index, name] of names.entries()) {
      const [at, elsewhere] = index % 2 === 0 ? [one, other] : [other, one];
      await untilPublished(at, name, 2);
      expect(await call(elsewhere, name)).toEqual([2, 4, 6, 8]);
    }
  });

  test('hosts that publish the same function at once make two versions of it; for one version number the loser gets the reason', async () => {
    const both = await Promise.all([publish(one, 'race', 3), publish(other, 'race', 5)]);
    expect(both).toMatchObject([{ status: 201 }, { status: 201 }]);
    const answers = new Map<string, number[]>();
    for (const reply of both) {
      const { version, sha256 } = JSON.parse(reply.text) as { version: string; sha256: string };
      answers.set(version, sha256 === (await shaOf(3)) ? [3, 6, 9, 12] : [5, 10, 15, 20]);
    }
    expect([...answers.keys()].toSorted()).toEqual(['1', '2']);
    for (const host of [one, other]) {
      for (const [version, answer] of answers) {
        await vi.waitFor(async () => expect(await call(host, `race/versions/${version}`)).toEqual(answer), patient);
      }
    }
    // Repeated, since one may hear of the other just while it writes.
    for (let round = 0; round < 8; round++) {
      const name = `named-${round}`;
      const named = await Promise.all([publish(one, name, 3, 'version=7'), publish(other, name, 5, 'version=7')]);
      expect(named.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([201, 409]);
      expect(named.find(({ status }) => status === 409)?.text).toContain(
        `version '7' of function '${name}' is published already, with another model or other settings`,
      );
    }
  });

  test('settings, traffic and removals show everywhere', async () => {
    await untilPublished(one, 'changing', 2);
    await publish(one, 'changing', 3, 'traffic=0');
    await vi.waitFor(async () => expect(await call(other, 'changing')).toEqual([2, 4, 6, 8]), patient);
    expect((await ask(other, 'PATCH', '/functions/changing', '{"slo": "77ms"}')).status).toBe(200);
    await vi.waitFor(async () => expect(await shown(one, 'changing')).toMatchObject({ slo: '77ms' }), patient);
    await ask(one, 'POST', '/functions/changing/versions/2/promote');
    await vi.waitFor(async () => expect(await call(other, 'changing')).toEqual([3, 6, 9, 12]), patient);
    await ask(other, 'DELETE', '/functions/changing/versions/1');
    await vi.waitFor(async () => expect(await shown(one, 'changing')).toMatchObject({ versions: ['2'] }), patient);
    expect((await ask(one, 'DELETE', '/functions/changing')).status).toBe(204);
    await vi.waitFor(async () => expect(await shown(other, 'changing')).toBeUndefined(), patient);
    expect((await ask(other, 'DELETE', '/functions/changing')).status).toBe(404);
  });

  test('a call runs at the home of its function, wherever it arrives, and the reply says so', async () => {
    const third = await fleet.add();
    const hosts = [one, other, third];
    for (let index = 0; index < routedCount; index++) await untilPublished(one, `routed-${index}`, 2);
    await vi.waitFor(async () => {
      for (const host of hosts) expect(Object.keys(await statesAt(host))).toHaveLength(3);
    }, patient);
    const homes = new Set<string>();
    for (let index = 0; index < routedCount; index++) {
      await vi.waitFor(async () => {
        const ranAt = new Set<string>();
        for (const host of hosts) {
          const { answer, placement } = await placed(host, `routed-${index}`);
          expect(answer).toEqual([2, 4, 6, 8]);
          const [, there, reason] = /^host (\S+) \(([a-z-]+)\): cpu pool (?:warm|cold)$/.exec(placement) ?? [];
          expect(reason ?? 'home').toMatch(/home|elsewhere/);
          ranAt.add(there ?? nameOf(host));
        }
        // Its home, once that has the content.
        const { homes: own } = await json<{ homes: string[] }>(one, `/v2/fleet/functions/routed-${index}`);
        expect([...ranAt]).toEqual([own[0]]);
        for (const name of ranAt) homes.add(name);
      }, patient);
    }
    expect(homes.size).toBeGreaterThan(1);
    const shownHomes = await json<{ homes: string[]; holders: object[] }>(one, '/v2/fleet/functions/routed-0');
    expect(homes).toContain(shownHomes.homes[0]);
    expect(shownHomes.holders.length).toBeGreaterThan(0);
    const metrics = await Promise.all(hosts.map(async (host) => (await ask(host, 'GET', '/metrics')).text));
    const sum = (name: string): number =>
      metrics
        .flatMap((text) => Array.from(text.matchAll(new RegExp(`^${name}(?:\\{.*\\})? (\\d+)$`, 'gm'))))
        .reduce((total, [, count]) => total + Number(count), 0);
    const [passed, taken] = [sum('turntable_fleet_passed_total'), sum('turntable_fleet_taken_total')];
    expect(passed).toBeGreaterThan(routedCount);
    // A busy machine keeps a host from answering for so long that a call to it is given up, taken or not.
    expect(taken).toBeLessThanOrEqual(passed);
    expect(taken).toBeGreaterThanOrEqual(passed - sum('turntable_fleet_ran_again_total'));
    await vi.waitFor(async () => {
      expect((await ask(one, 'GET', '/metrics')).text).toContain('turntable_fleet_hosts{state="up"} 3');
    }, patient);
    // A draining host gets no calls from the others.
    expect((await ask(one, 'POST', `/v2/fleet/hosts/${nameOf(third)}/drain`, '{"draining":true}')).status).toBe(200);
    await vi.waitFor(async () => {
      for (let index = 0; index < routedCount; index++) {
        const { answer, placement } = await placed(one, `routed-${index}`);
        expect(answer).toEqual([2, 4, 6, 8]);
        expect(placement).not.toContain(nameOf(third));
      }
    }, patient);
    await fleet.stop(third);
    for (let index = 0; index < routedCount; index++) expect(await call(one, `routed-${index}`)).toEqual([2, 4, 6, 8]);
  });

  test('without Redis functions serve, and what is published at one host is served by the others', async () => {
    await untilPublished(one, 'kept', 2);
    await vi.waitFor(async () => expect(await call(other, 'kept')).toEqual([2, 4, 6, 8]), patient);
    await fleet.redis.kill();
    await vi.waitFor(async () => expect((await fleetOf(one)).redis.status).toBe('down'), patient);
    for (const host of [one, other]) expect(await call(host, 'kept')).toEqual([2, 4, 6, 8]);
    expect((await publish(one, 'late', 3)).status).toBe(201);
    expect(await call(other, 'late')).toEqual([3, 6, 9, 12]);
    expect((await ask(other, 'PATCH', '/functions/kept', '{"slo": "77ms"}')).status).toBe(200);
    // Nobody tells it, so it finds the change by the store's marker.
    await vi.waitFor(async () => expect(await shown(one, 'kept')).toMatchObject({ slo: '77ms' }), patient);
    await rm(fleet.redis.folder + '/appendonlydir', { recursive: true, force: true });
    await fleet.redis.start();
    await vi.waitFor(async () => expect((await fleetOf(one)).redis.status).toBe('up'), patient);
    const third = await fleet.add();
    expect(await functionsAt(third)).toEqual(await functionsAt(one));
    expect(await shown(third, 'race')).toMatchObject({ versions: ['1', '2'] });
    expect(await call(third, 'late')).toEqual([3, 6, 9, 12]);
    await fleet.stop(third);
  });

  test('the hosts still know each other while Redis is away, and after it has lost its data', async () => {
    await vi.waitFor(async () => expect(Object.keys(await statesAt(one))).toHaveLength(2), patient);
    await fleet.redis.kill();
    await vi.waitFor(async () => expect((await fleetOf(one)).redis.status).toBe('down'), patient);
    expect(await statesAt(one)).toEqual({ [nameOf(one)]: 'up', [nameOf(other)]: 'up' });
    await fleet.redis.start();
    await fleet.redis.command('FLUSHALL');
    await vi.waitFor(async () => {
      expect((await fleetOf(one)).redis.status).toBe('up');
      expect(await statesAt(other)).toEqual({ [nameOf(one)]: 'up', [nameOf(other)]: 'up' });
    }, patient);
  });
});

test('a host that cannot join the configured fleet says what is missing', async () => {
  expect(await refusal({})).toContain('set its address with --redis');
  const redis = { 'redis.url': 'redis://127.0.0.1:1' };
  expect(await refusal(redis)).toContain('name a folder or a bucket with --store');
  const store = { ...redis, 'store.place': '/none' };
  expect(await refusal({ ...store, 'listen.host': '0.0.0.0' })).toContain(
    'without TLS, only on loopback: make certificates with `turntable key HOST --tls',
  );
  expect(await refusal({ ...store, 'fleet.tlsCert': '/none' })).toContain('"fleet.tlsCa" are set together');
  const files = { 'fleet.tlsCert': '/none', 'fleet.tlsKey': '/none', 'fleet.tlsCa': '/none' };
  expect(await refusal({ ...store, ...files })).toContain('"fleet.tlsCert": /none cannot be read');
});

test.each([
  ['TURNTABLE_FLEET_SECRET', 'a secret of the fleet'],
  ['TURNTABLE_FLEET_SECRET_FILE', '/run/secret'],
  ['TURNTABLE_FLEET_CA_FILE', '/run/ca.pem'],
])('%s of an older configuration is refused, with what replaces it', (name, value) => {
  expect(() => loadConfig({ environment: { [name]: value } })).toThrow(
    `${name} is an option no more: the hosts of a fleet know each other by certificates. Make them with \`turntable key`,
  );
});
