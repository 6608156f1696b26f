/** Faults planted in a running host, and whether page, `top` and metrics name the true cause. */
import { describe, expect, test } from 'vitest';
import { failingHandler, neighbours } from '../../bench/causes/faults.ts';
import { scene, slowHandler } from '../../bench/causes/scene.ts';
import { instancePids } from '../../bench/servers.ts';
import type { TroubleRow } from '../../src/host/dashboard/index.ts';

describe('the cause that is named', () => {
  test('of functions that evict each other is the load, for whom, and how full memory is', async () => {
    // Room for two or three processes.
    const names = ['one', 'two', 'three', 'four'];
    const functions = Object.fromEntries(names.map((name) => [name, { settings: { slo: '20ms', isolation: 'own' } }]));
    await scene(functions, ['--cpu-memory', '100MB', '--cpu-cores', '1'], async (run) => {
      for (let round = 0; round < 20; round++) for (const name of names) await run.call(name);
      const { worst } = await run.trouble();
      const evicted = worst.filter(({ facts }) => facts.startsWith('evicted '));
      expect(evicted.length).toBeGreaterThan(0);
      for (const { causes, facts, advice } of evicted) {
        expect(causes[0]).toMatchObject({ cause: 'load', words: 'waited for the model' });
        expect(facts).toMatch(
          /^evicted (once|\d+ times)( for (one|two|three|four).*)?: up to [\d.]+ MB of 100 MB used \(cpu\.memory\)($|; )/,
        );
        // As this host was called.
        expect(advice).toMatch(/cpu\.memory.*bin\/turntable\.js set \w+ pinned=true/);
      }
      const [{ name }] = evicted as [TroubleRow];
      expect(await run.top()).toContain(`${name}: waited for the model: evicted `);
      const counted = await run.metrics(name);
      expect(Math.max(...Object.values(counted))).toBe(counted['load']);
    });
  });

  test('of instances that are stopped is seen while it lasts: the calls are overdue, in the model', async () => {
    await scene({ stopped: { settings: { slo: '100ms' } } }, ['--cpu-cores', '1'], async (run) => {
      const missed = async (): Promise<number> =>
        Object.values(await run.metrics('stopped')).reduce((sum, count) => sum + count, 0);
      for (let call = 0; call < 3; call++) expect(await run.call('stopped')).toBe(200);
      // On a busy machine these are late themselves.
      const missedBefore = await missed();
      const pids = await instancePids(run.host.process);
      for (const pid of pids) process.kill(pid, 'SIGSTOP');
      const leave = new AbortController();
      const calls = Array.from({ length: 5 }, () => run.call('stopped', leave.signal));
      await expect.poll(() => run.row('stopped'), { interval: 500 }).toMatchObject({ overdue: { calls: 5 } });
      const row = (await run.row('stopped'))!;
      expect(row.causes[0]).toMatchObject({ cause: 'model' });
      expect(row.facts).toMatch(/^its process \d+ is stopped($|;)/);
      expect(row.advice).toMatch(/kill -CONT \d+/);
      expect(await run.top()).toMatch(/5 overdue, the oldest \d/);
      const metrics = await run.metricsText();
      expect(metrics).toContain('turntable_overdue_calls{function="stopped"} 5');
      expect(Number(/^turntable_oldest_open_call_seconds (\S+)/m.exec(metrics)?.[1])).toBeGreaterThan(0.1);
      leave.abort();
      await Promise.all(calls);
      // They left after their SLO: late, once each, and no mistake of the caller's. What an instance has ends there.
      for (const pid of pids) goOn(pid);
      await expect.poll(missed).toBe(missedBefore + 5);
      expect((await run.trouble()).refused.calls).toBe(0);
    });
  });

  test('is the handler, the failure, or a client that sends slowly, and none of few calls or of clients that leave in time', async () => {
    const functions = {
      slow: { settings: { slo: '50ms' }, handler: slowHandler },
      left: { settings: { slo: '30s' }, handler: slowHandler },
      failing: { settings: { slo: '30s' }, handler: failingHandler },
      uploaded: { settings: { slo: '1s' } },
      first: { settings: { slo: '1ms' } },
    };
    await scene(functions, ['--cpu-cores', '1'], async (run) => {
      // Few calls are no headline, and a client that leaves within the SLO is no miss.
      expect(await run.call('first')).toBe(200);
      const leave = new AbortController();
      const leaving = Array.from({ length: 5 }, () => run.call('left', leave.signal));
      const inFlight = async (): Promise<number> =>
        Number(/^turntable_requests_in_flight (\d+)/m.exec(await run.metricsText())?.[1]);
      await expect.poll(inFlight).toBeGreaterThan(0);
      leave.abort();
      await Promise.all(leaving);
      await expect.poll(inFlight).toBe(0);
      expect(await run.trouble()).toMatchObject({ missing: 0, worst: [], overdue: { calls: 0 } });
      expect(await run.metrics('first')).toEqual({ load: 1 });
      // Its own page tells why all the same, and nothing of a function without misses.
      expect(await run.ofFunction('first')).toMatchObject({ missed: 1, causes: [{ cause: 'load' }] });
      expect(await run.ofFunction('left')).toBeNull();
      expect(await run.metrics('left')).toEqual({});

      for (let call = 0; call < 20; call++) {
        expect(await run.call('slow')).toBe(200);
        expect(await run.call('failing')).toBe(500);
      }
      expect(await run.call('uploaded')).toBe(200);
      await Promise.all(Array.from({ length: 20 }, () => run.callSlowly('uploaded', 2000)));
      const words = { slow: 'in the handler', failing: 'failed', uploaded: 'receiving the body' };
      const causes = { slow: 'handler', failing: 'failed', uploaded: 'upload' } as const;
      for (const name of ['slow', 'failing', 'uploaded'] as const) {
        const { row, top, countsAgree } = await run.said(name);
        expect(row?.causes[0]).toMatchObject({ cause: causes[name], words: words[name] });
        expect(top).toContain(`${name}: ${words[name]}: `);
        expect(countsAgree).toBe(true);
        const [most = []] = Object.entries(await run.metrics(name)).toSorted(([, one], [, other]) => other - one);
        expect(most[0]).toBe(causes[name]);
        expect((await run.ofFunction(name))?.causes).toEqual(row?.causes);
      }
      // All of them together: the failures have no time beyond their SLO.
      const { lateMs, unexplainedMs } = await run.missedTime();
      expect(lateMs).toBeGreaterThan(20 * 1000);
      expect(unexplainedMs).toBeLessThan(lateMs);
    });
  });

  test('of cores that other programs take is said with their share', async () => {
    const busy = neighbours();
    try {
      await scene({ busy: { settings: { slo: '1ms' } } }, ['--cpu-cores', '1'], async (run) => {
        await expect
          .poll(
            async () => {
              for (let call = 0; call < 20; call++) await run.call('busy');
              return (await run.row('busy'))?.facts;
            },
            { interval: 1000 },
          )
          .toMatch(/cores \d+% by Turntable, [4-9]\d% by others/);
        expect((await run.row('busy'))!.advice).toContain(
          'Other programs use the cores: give Turntable a machine or cores of its own.',
        );
      });
    } finally {
      busy[Symbol.dispose]();
    }
  });
});

/** On a busy machine a stopped process may have been ended by its time limit meanwhile. */
function goOn(pid: number): void {
  try {
    process.kill(pid, 'SIGCONT');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
