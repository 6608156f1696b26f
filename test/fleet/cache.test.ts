/**
 * Hosts with a store used as a cache: content over the budget is removed if others have it, and loaded again for a
 * call.
 */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ask, call, json, patient, untilPublished } from '../support/fleet-calls.ts';
import { rankMembers } from '../../src/schedule/index.ts';
import { FleetHosts, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

const count = 6;
const names = Array.from({ length: count }, (_, index) => `cached-${index}`);
const answer = (name: string): number[] => [1, 2, 3, 4].map((value) => value * (names.indexOf(name) + 2));

const metric = async (host: ReluHost, name: string): Promise<number> => {
  const { text } = await ask(host, 'GET', '/metrics');
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
};

describe.skipIf(redisMissing !== undefined)('hosts of a fleet with a budget for content', () => {
  let fleet: FleetHosts;
  let hosts: readonly ReluHost[];
  beforeAll(async () => {
    fleet = await FleetHosts.start(0);
    const budget = { flags: { 'fleet.cache': '1B' } };
    hosts = [await fleet.add(budget), await fleet.add(budget), await fleet.add(budget)];
  });
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]();
  });

  /** Hosts that have the content, by their own answers. */
  async function copiesOf(name: string): Promise<ReluHost[]> {
    const { sha256 } = await json<{ sha256: string }>(hosts[0]!, `/functions/${name}`);
    const there = await Promise.all(
      hosts.map(async (host) => (await ask(host, 'HEAD', `/blobs/sha256:${sha256}`)).status === 200),
    );
    return hosts.filter((_, index) => there[index]);
  }

  test('each function ends up at two hosts, and answers at all of them', async () => {
    await vi.waitFor(async () => {
      for (const host of hosts) expect(Object.keys(await statesAt(host))).toHaveLength(3);
    }, patient);
    for (const [index, name] of names.entries()) {
      // At the host that is not one of the two that should have it.
      const order = rankMembers(
        hosts.map((host) => ({ id: nameOf(host), capacity: 1000 })),
        name,
      );
      await untilPublished(hosts[order[2]!]!, name, index + 2);
    }
    await vi.waitFor(async () => {
      for (const name of names) expect(await copiesOf(name)).toHaveLength(2);
    }, patient);
    const dropped = await Promise.all(hosts.map(async (host) => await metric(host, 'turntable_fleet_dropped_total')));
    // More where a host that did not answer for a while was taken for gone, and got its content back.
    expect(dropped.reduce((sum, each) => sum + each, 0)).toBeGreaterThanOrEqual(count);
    for (const host of hosts) {
      for (const name of names) expect(await call(host, name)).toEqual(answer(name));
    }
  });

  test('when a host is lost, its content is copied to two hosts again, and nothing is missing', async () => {
    const [lost] = hosts;
    hosts = hosts.slice(1);
    await fleet.stop(lost!);
    await vi.waitFor(async () => {
      for (const name of names) expect(await copiesOf(name)).toHaveLength(2);
    }, patient);
    for (const host of hosts) for (const name of names) expect(await call(host, name)).toEqual(answer(name));
  });
});
