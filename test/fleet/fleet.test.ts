/** A fleet of hosts in this process: who is let in, and what each knows of the others. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Seal } from '../../src/fleet/seal.ts';
import { loadConfig, startHost } from '../../src/host/index.ts';
import { FleetHosts, fleetOf, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

/** For what the hosts tell each other by and by; a busy machine only makes it longer. */
const patient = { timeout: 60_000, interval: 20 };

async function drain({ url }: ReluHost, host: string, draining: boolean): Promise<number> {
  const body = JSON.stringify({ draining });
  return (await fetch(`${url}/v2/fleet/hosts/${encodeURIComponent(host)}/drain`, { method: 'POST', body })).status;
}

/** What a host says that is to join with these options, and cannot. */
async function refusal(flags: Record<string, string>): Promise<string> {
  const { config } = loadConfig({ flags: { 'fleet.name': 'lab', ...flags }, environment: {} });
  return await startHost(config).then(
    () => 'it started',
    (error: unknown) => (error as Error).message,
  );
}

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

  test('each host shows all of them, and how long the way there is', async () => {
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

  test('a host with another secret is not let in, and lets nobody in', async () => {
    const stranger = await fleet.add({ secret: 'quite another secret' });
    await vi.waitFor(async () => expect(Object.keys(await statesAt(stranger))).toEqual([nameOf(stranger)]), patient);
    expect((await fleetOf(one)).hosts).toHaveLength(2);
    const path = '/v2/fleet/ping';
    const ping = async (authorization?: string): Promise<[number, string]> => {
      const reply = await fetch(one.url + path, authorization === undefined ? {} : { headers: { authorization } });
      return [reply.status, await reply.text()];
    };
    const signedBy = (secret: string, atMs = Date.now(), signed = path): string =>
      new Seal('lab', secret).authorization('somebody', { method: 'GET', path: signed }, atMs);
    expect((await ping(signedBy('a secret of the fleet')))[0]).toBe(200);
    const [status, text] = await ping(signedBy('quite another secret'));
    expect(status).toBe(403);
    expect(text).toContain("not signed with the secret of fleet 'lab'");
    expect((await ping(signedBy('a secret of the fleet', Date.now(), '/v2/fleet')))[0]).toBe(403);
    expect((await ping(signedBy('a secret of the fleet', Date.now() - 3_600_000)))[1]).toContain('too long ago');
    expect((await ping())[0]).toBe(401);
    await fleet.stop(stranger);
  });

  test('a host drains when any host is asked for it, and takes part again', async () => {
    for (const [draining, state] of [
      [true, 'draining'],
      [false, 'up'],
    ] as const) {
      expect(await drain(one, nameOf(other), draining)).toBe(200);
      await vi.waitFor(async () => {
        expect(await statesAt(one)).toMatchObject({ [nameOf(other)]: state });
        expect(await statesAt(other)).toMatchObject({ [nameOf(other)]: state });
      }, patient);
    }
    expect(await drain(one, 'nobody:1', true)).toBe(404);
  });

  test('a host that stops is gone from the others; one that comes is there', async () => {
    const third = await fleet.add();
    await vi.waitFor(async () => expect(await statesAt(one)).toHaveProperty([nameOf(third)], 'up'), patient);
    await fleet.stop(third);
    await vi.waitFor(async () => expect(await statesAt(one)).not.toHaveProperty([nameOf(third)]), patient);
  });

  test('the hosts still know each other while Redis is away, and after it has lost its data', async () => {
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

test('a host that cannot join the fleet that it is told of says what is missing', async () => {
  expect(await refusal({})).toContain('set its address with --redis');
  expect(await refusal({ 'redis.url': 'redis://127.0.0.1:1' })).toContain(
    'needs its secret: set TURNTABLE_FLEET_SECRET',
  );
  expect(await refusal({ 'redis.url': 'redis://127.0.0.1:1', 'fleet.secretFile': '/none' })).toContain(
    'cannot be read',
  );
});
