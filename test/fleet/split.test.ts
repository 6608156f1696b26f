/** One request of several rows over the hosts of a fleet. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ask, patient, publish } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

const rows = Array.from({ length: 8 }, (_, row) => [row, row + 1, -1, 4]);
const body = JSON.stringify({ input: rows });
const doubled = { output: rows.map((row) => row.map((value) => 2 * value)) };

describe.skipIf(redisMissing !== undefined)('a request of several rows in a fleet', () => {
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

  test('runs in parts at both hosts once the time of rows is known, and names them', async () => {
    // A host tries parts once, to learn what fewer rows take. If the other one is too busy to answer in that moment, the
    // next function shows it.
    let placement = '';
    for (let count = 0; !/^2 parts: 4 rows on cpu pool \w+, 4 rows on host /.test(placement); count++) {
      const name = `rows-${count}`;
      await vi.waitFor(
        async () => expect((await publish(one, name, 2, 'slo=60s&batching.max=8')).status).toBeLessThan(300),
        patient,
      );
      do {
        const { headers, text } = await ask(one, 'POST', `/function/${name}`, body);
        placement = String(headers['x-turntable-placement']);
        expect(JSON.parse(text)).toEqual(doubled);
      } while (!placement.startsWith('2 parts: '));
    }
    expect(placement).toContain(`4 rows on host ${nameOf(other)} (part): cpu pool`);
    const { text } = await ask(one, 'GET', '/metrics');
    const counted = new RegExp(`^turntable_fleet_passed_total\\{host="${nameOf(other)}",reason="part"\\} [1-9]`, 'm');
    expect(text).toMatch(counted);
    // A part is not passed on, and its request counts once, where its client called.
    const there = await ask(other, 'GET', '/metrics');
    expect(there.text).not.toMatch(/^turntable_fleet_passed_total\{.*reason="part"\}/m);
    expect(there.text).toMatch(/^turntable_split_requests_total 0$/m);
  });

  test('is answered by the other host alone when one is lost', async () => {
    await fleet.stop(other);
    const { status, text } = await ask(one, 'POST', '/function/rows-0', body);
    expect([status, JSON.parse(text)]).toEqual([200, doubled]);
  });
});
