/** A killed host of a fleet: which hosts show it, for how long, and what they say about its functions. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { serve, turntable, type ServingHost } from '../cli/command.ts';
import { ask, call, json, patient, untilPublished } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf, statesAt } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import type { ReluHost } from '../support/relu-host.ts';

interface FleetShown {
  readonly hosts: readonly { name: string; state: string; reason?: string; lost_at?: string }[];
  readonly moves: readonly { function: string; from: string | null; to: string | null; reason: string }[];
}
interface Told {
  readonly events: readonly { kind: string; functionName: string | null; text: string; level: string }[];
}

const shown = async (host: { url: string }): Promise<FleetShown> => await json<FleetShown>(host, '/v2/fleet');

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
    killed = await serve(
      ['--redis', fleet.redis.url, '--fleet', 'lab', '--gpu-use', 'off', '--cpu-cores', '1', ...store],
      {
        TURNTABLE_FLEET_SECRET: 'a secret of the fleet',
      },
    );
    name = nameOf(killed);
    athome = [];
  });
  afterAll(async () => {
    killed?.child.kill('SIGKILL');
    await fleet?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('stays at every host as lost, with the time and the new homes of its functions', async () => {
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
    await vi.waitFor(async () => {
      for (const host of [one, other]) expect(await statesAt(host)).toHaveProperty([name], 'lost');
    }, patient);
    for (const host of [one, other]) {
      await vi.waitFor(async () => {
        const found = (await shown(host)).hosts.find((each) => each.name === name);
        expect(found).toMatchObject({ state: 'lost', reason: expect.stringContaining('moved to') });
        const counted = [...(found?.reason ?? '').matchAll(/ \((\d+)\)/g)].reduce((sum, [, n]) => sum + Number(n), 0);
        expect(counted).toBe(athome.length);
        expect(Math.abs(Date.now() - Date.parse(found?.lost_at ?? ''))).toBeLessThan(120_000);
      }, patient);
    }
    const metrics = await ask(one, 'GET', '/metrics');
    expect(metrics.text).toContain('turntable_fleet_hosts{state="lost"} 1');
  });

  test('has each move of its functions reported: from where, to where, and that the host was lost', async () => {
    await vi.waitFor(async () => {
      const { moves } = await shown(one);
      const lost = moves.filter(({ reason }) => reason === 'lost');
      expect(lost.map((move) => move.function).toSorted()).toEqual(athome.toSorted());
      for (const { from, to } of lost)
        expect([from, [nameOf(one), nameOf(other)].includes(to ?? '')]).toEqual([name, true]);
    }, patient);
    const { events } = await json<Told>(one, '/api/event-log');
    for (const each of athome) {
      expect(events).toContainEqual(
        expect.objectContaining({
          kind: 'moved',
          functionName: each,
          text: expect.stringMatching(new RegExp(`^Its home moved from ${name} to \\S+: ${name} is lost$`)),
        }),
      );
    }
    expect(events).toContainEqual(
      expect.objectContaining({
        kind: 'host',
        level: 'warning',
        text: expect.stringContaining(`Host ${name} is lost`),
      }),
    );
  });

  test('gets no calls: its functions answer at the others', async () => {
    for (let index = 0; index < count; index++) {
      const answer = [1, 2, 3, 4].map((value) => value * (index + 2));
      for (const host of [one, other]) {
        await vi.waitFor(async () => expect(await call(host, `f${index}`)).toEqual(answer), patient);
      }
    }
  });

  test('is in `ps --fleet` with the time and the reason, and cannot be drained', async () => {
    const { stdout } = await turntable(['ps', '--fleet', '--url', one.url]);
    expect(stdout).toMatch(new RegExp(`^${name} +lost .* since \\d{4}-\\S+Z; .*moved to`, 'm'));
    const { exitCode, stderr } = await turntable(['drain', name, '--url', one.url]);
    expect([exitCode === 0, stderr]).toEqual([
      false,
      expect.stringContaining('is lost: there is nothing left to drain'),
    ]);
  });

  test('is still shown by a host that starts later, and after Redis has lost its data', async () => {
    const later = await fleet.add();
    await vi.waitFor(async () => expect(await statesAt(later)).toHaveProperty([name], 'lost'), patient);
    const found = (await shown(later)).hosts.find((each) => each.name === name);
    expect(found?.reason).toBe('it was lost before the host that was asked came');
    await fleet.stop(later);
    await fleet.redis.command('FLUSHALL');
    const isThere = `HEXISTS turntable:fleet:lab:lost ${name}`;
    await vi.waitFor(async () => expect(await fleet.redis.command(isThere)).toMatch(/1/), patient);
    expect(await statesAt(one)).toHaveProperty([name], 'lost');
    // That host left; it is not lost.
    await vi.waitFor(async () => expect(await statesAt(one)).not.toHaveProperty([nameOf(later)]), patient);
  });

  test('disappears from every host when an operator forgets it at one; a host that is up cannot be forgotten', async () => {
    const refused = await turntable(['drain', nameOf(other), '--forget', '--url', one.url]);
    expect([refused.exitCode === 0, refused.stderr]).toEqual([false, expect.stringContaining('is not lost')]);
    const forgotten = await turntable(['drain', name, '--forget', '--url', one.url]);
    expect(forgotten).toEqual({ exitCode: 0, stdout: `${name}: forgotten\n`, stderr: '' });
    for (const host of [one, other]) {
      await vi.waitFor(async () => expect(await statesAt(host)).not.toHaveProperty([name]), patient);
    }
  });
});
