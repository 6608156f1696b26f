/** One host of a fleet is killed. The other hosts report it as lost, and its functions get their homes there. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { serve, turntable, type ServingHost } from '../cli/command.ts';
import { call, json, patient, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, learnName, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

interface EventLog {
  readonly events: readonly { kind: string; functionName: string | null; text: string; level: string }[];
}

/**
 * How many functions are published at least. Each has the host that will be killed as its home with a chance of one in
 * three. In one run of 130 none of the 12 has, and the test publishes more.
 */
const functionsMin = 12;

describe.skipIf(redisMissing !== undefined)('a fleet that loses a host', () => {
  let fleet: FleetHosts;
  let one: ReluHost;
  let other: ReluHost;
  let killed: ServingHost;
  let folder: string;
  let name: string;
  let functionCount = 0;
  /** Functions whose home is the host that will be killed. */
  let functionsOfKilled: string[];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-lost-'));
    fleet = await FleetHosts.start(2);
    [one, other] = fleet.hosts as [ReluHost, ReluHost];
    const store = ['--data-dir', join(folder, 'data'), '--functions-dir', join(folder, 'functions')];
    store.push('--store', join(fleet.redis.folder, 'store'));
    killed = await serve([
      '--redis',
      fleet.redis.url,
      '--fleet',
      'lab',
      '--fleet-port',
      '0',
      '--gpu-use',
      'off',
      '--cpu-cores',
      '1',
      ...store,
    ]);
    await learnName(killed);
    name = nameOf(killed);
    functionsOfKilled = [];
  });
  afterAll(async () => {
    killed?.child.kill('SIGKILL');
    await fleet?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('the other hosts report a killed host as lost, and become the homes of its functions', async () => {
    await vi.waitFor(async () => {
      for (const host of [one, other]) expect(await statesAt(host)).toHaveProperty([name], 'up');
    }, patient);
    for (; functionCount < functionsMin || functionsOfKilled.length === 0; functionCount++) {
      const published = `f${functionCount}`;
      await untilPublished(one, published, functionCount + 2);
      const { homes } = await json<{ homes: string[] }>(one, `/v2/fleet/functions/${published}`);
      if (homes[0] === name) functionsOfKilled.push(published);
    }
    await killed.end('SIGKILL');
    for (const host of [one, other]) {
      await vi.waitFor(async () => expect(await statesAt(host)).not.toHaveProperty([name]), patient);
      const { events } = await json<EventLog>(host, '/api/event-log');
      const text = expect.stringContaining(`Host ${name} is lost`) as string;
      expect(events).toContainEqual(expect.objectContaining({ kind: 'host', level: 'warning', text }));
      for (const published of functionsOfKilled) {
        const { homes } = await json<{ homes: string[] }>(host, `/v2/fleet/functions/${published}`);
        expect([nameOf(one), nameOf(other)]).toContain(homes[0]);
      }
    }
  });

  test('the functions of a killed host answer at the other hosts', async () => {
    for (let index = 0; index < functionCount; index++) {
      const answer = [1, 2, 3, 4].map((value) => value * (index + 2));
      for (const host of [one, other]) {
        await vi.waitFor(async () => expect(await call(host, `f${index}`)).toEqual(answer), patient);
      }
    }
  });

  test('a killed host cannot be drained, and a host that stops by itself is reported as having left, not as lost', async () => {
    const { exitCode, stderr } = await turntable(['drain', name, '--url', one.url]);
    expect([exitCode === 0, stderr]).toEqual([false, expect.stringContaining(`has no host '${name}'`)]);
    const joined = await fleet.add();
    await vi.waitFor(async () => expect(await statesAt(one)).toHaveProperty([nameOf(joined)], 'up'), patient);
    await fleet.stop(joined);
    await vi.waitFor(async () => expect(await statesAt(one)).not.toHaveProperty([nameOf(joined)]), patient);
    const { events } = await json<EventLog>(one, '/api/event-log');
    const texts = events.map(({ text }) => text);
    expect(texts).toContain(`Host ${nameOf(joined)} has left the fleet`);
    expect(texts.some((text) => text.includes(`${nameOf(joined)} is lost`))).toBe(false);
  });
});
