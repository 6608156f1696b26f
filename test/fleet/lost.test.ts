/** A killed host of a fleet: what the others say of it, and where its functions are at home then. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { serve, turntable, type ServingHost } from '../cli/command.ts';
import { call, json, patient, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, learnName, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

interface Told {
  readonly events: readonly { kind: string; functionName: string | null; text: string; level: string }[];
}

/** The killed host is the home of a third of them: of none once in 130 runs, and then there are more. */
const countMin = 12;

describe.skipIf(redisMissing !== undefined)('a host of a fleet that is killed', () => {
  let fleet: FleetHosts;
  let one: ReluHost;
  let other: ReluHost;
  let killed: ServingHost;
  let folder: string;
  let name: string;
  let count = 0;
  /** Functions whose home is the host that will be killed. */
  let athome: string[];

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
    athome = [];
  });
  afterAll(async () => {
    killed?.child.kill('SIGKILL');
    await fleet?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('is gone from every host, which says so, and its functions have homes at the others', async () => {
    await vi.waitFor(async () => {
      for (const host of [one, other]) expect(await statesAt(host)).toHaveProperty([name], 'up');
    }, patient);
    for (; count < countMin || athome.length === 0; count++) {
      const published = `f${count}`;
      await untilPublished(one, published, count + 2);
      const { homes } = await json<{ homes: string[] }>(one, `/v2/fleet/functions/${published}`);
      if (homes[0] === name) athome.push(published);
    }
    await killed.end('SIGKILL');
    for (const host of [one, other]) {
      await vi.waitFor(async () => expect(await statesAt(host)).not.toHaveProperty([name]), patient);
      const { events } = await json<Told>(host, '/api/event-log');
      const text = expect.stringContaining(`Host ${name} is lost`) as string;
      expect(events).toContainEqual(expect.objectContaining({ kind: 'host', level: 'warning', text }));
      for (const each of athome) {
        const { homes } = await json<{ homes: string[] }>(host, `/v2/fleet/functions/${each}`);
        expect([nameOf(one), nameOf(other)]).toContain(homes[0]);
      }
    }
  });

  test('gets no calls: its functions answer at the others', async () => {
    for (let index = 0; index < count; index++) {
      const answer = [1, 2, 3, 4].map((value) => value * (index + 2));
      for (const host of [one, other]) {
        await vi.waitFor(async () => expect(await call(host, `f${index}`)).toEqual(answer), patient);
      }
    }
  });

  test('cannot be drained, and is listed again when it is back', async () => {
    const { exitCode, stderr } = await turntable(['drain', name, '--url', one.url]);
    expect([exitCode === 0, stderr]).toEqual([false, expect.stringContaining(`has no host '${name}'`)]);
    const later = await fleet.add();
    await vi.waitFor(async () => expect(await statesAt(one)).toHaveProperty([nameOf(later)], 'up'), patient);
    await fleet.stop(later);
    await vi.waitFor(async () => expect(await statesAt(one)).not.toHaveProperty([nameOf(later)]), patient);
    const { events } = await json<Told>(one, '/api/event-log');
    const texts = events.map(({ text }) => text);
    expect(texts).toContain(`Host ${nameOf(later)} has left the fleet`);
    expect(texts.some((text) => text.includes(`${nameOf(later)} is lost`))).toBe(false);
  });
});
