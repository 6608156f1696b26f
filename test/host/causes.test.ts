/** Faults planted in a running host, and whether page, `top` and metrics name the true cause. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sumGraph } from '../../bench/chaos/models.ts';
import type { TroubleAnswer, TroubleRow } from '../../src/host/dashboard/index.ts';
import { writeModel } from '../../src/onnx/index.ts';
import { serve, turntable, type ServingHost } from '../cli/command.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-causes-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const slowHandler = `
export async function preprocess() {
  await new Promise((resolve) => setTimeout(resolve, 150));
  return [{ name: 'x', datatype: 'FP32', shape: [1, 1], data: [1] }];
}
export const postprocess = () => 'ok';
`;

class Scene {
  readonly host: ServingHost;
  constructor(host: ServingHost) {
    this.host = host;
  }

  async call(name: string, signal?: AbortSignal): Promise<number> {
    const body = '{"input":[[1]]}';
    const sent = fetch(`${this.host.url}/function/${name}`, { method: 'POST', body, ...(signal && { signal }) });
    return await sent.then(
      async (reply) => {
        await reply.arrayBuffer();
        return reply.status;
      },
      () => 0,
    );
  }

  async trouble(): Promise<TroubleAnswer> {
    return (await (await fetch(`${this.host.url}/api/trouble?range=1m`)).json()) as TroubleAnswer;
  }

  async row(name: string): Promise<TroubleRow | undefined> {
    return (await this.trouble()).worst.find((each) => each.name === name);
  }

  /** Missed calls by cause, of /metrics. */
  async metrics(name: string): Promise<Record<string, number>> {
    const text = await (await fetch(`${this.host.url}/metrics`)).text();
    const lines = text.matchAll(
      new RegExp(`^turntable_missed_total\\{function="${name}",cause="(\\w+)"\\} (\\d+)`, 'gm'),
    );
    return Object.fromEntries(Array.from(lines, ([, cause, count]) => [cause, Number(count)]));
  }

  async top(): Promise<string> {
    return (await turntable(['top', '--once', '--url', this.host.url])).stdout;
  }
}

async function scene(
  functions: Readonly<Record<string, { settings?: object; handler?: string }>>,
  flags: readonly string[],
  act: (scene: Scene) => Promise<void>,
): Promise<void> {
  const place = await mkdtemp(join(folder, 'scene-'));
  for (const [name, { settings = {}, handler }] of Object.entries(functions)) {
    await mkdir(join(place, 'functions', name), { recursive: true });
    await writeModel(sumGraph(1).build(), join(place, 'functions', name, 'model.onnx'));
    const own = handler === undefined ? settings : { ...settings, handler: 'handler.mjs' };
    await writeFile(join(place, 'functions', name, 'function.json'), JSON.stringify(own));
    if (handler !== undefined) await writeFile(join(place, 'functions', name, 'handler.mjs'), handler);
  }
  const at = ['--functions', join(place, 'functions'), '--data', join(place, 'data'), '--gpu-use', 'off'];
  const host = await serve([...at, ...flags]);
  try {
    await act(new Scene(host));
  } finally {
    await host.end('SIGKILL');
  }
}

/** Processes of the host that hold sessions. */
async function instancesOf(host: ServingHost): Promise<number[]> {
  const { pid } = host.child;
  const children = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).split(' ').filter(Boolean).map(Number);
  const lines = await Promise.all(children.map((child) => readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => '')));
  return children.filter((_, at) => lines[at]!.includes('instance-process'));
}

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
          /^evicted (once|\d+ times)( for (one|two|three|four).*)?: up to [\d.]+ MB of 100 MB used($|; cores )/,
        );
        expect(advice).toMatch(/cpu\.memory/);
      }
      const [{ name }] = evicted as [TroubleRow];
      expect(await run.top()).toContain(`${name}: waited for the model: evicted `);
      const counted = await run.metrics(name);
      expect(Math.max(...Object.values(counted))).toBe(counted['load']);
    });
  });

  test('of instances that are stopped is seen while it lasts: the calls are overdue, in the model', async () => {
    await scene({ stopped: { settings: { slo: '100ms' } } }, ['--cpu-cores', '1'], async (run) => {
      for (let call = 0; call < 3; call++) expect(await run.call('stopped')).toBe(200);
      for (const pid of await instancesOf(run.host)) process.kill(pid, 'SIGSTOP');
      const leave = new AbortController();
      const calls = Array.from({ length: 5 }, () => run.call('stopped', leave.signal));
      await expect.poll(() => run.row('stopped'), { interval: 500 }).toMatchObject({ overdue: { calls: 5 } });
      const row = (await run.row('stopped'))!;
      expect(row.causes[0]).toMatchObject({ cause: 'model' });
      expect(row.advice).toMatch(/hang or die/);
      expect(await run.top()).toMatch(/5 overdue, the oldest \d/);
      const metrics = await (await fetch(`${run.host.url}/metrics`)).text();
      expect(metrics).toContain('turntable_overdue_calls{function="stopped"} 5');
      expect(Number(/^turntable_oldest_open_call_seconds (\S+)/m.exec(metrics)?.[1])).toBeGreaterThan(0.1);
      leave.abort();
      await Promise.all(calls);
      // They left after their SLO: late, once each, and no mistake of the caller's. The one that ran ends later.
      const missed = async (): Promise<number> =>
        Object.values(await run.metrics('stopped')).reduce((sum, count) => sum + count, 0);
      await expect.poll(missed).toBe(4);
      expect((await run.trouble()).refused.calls).toBe(0);
    });
  });

  test('of a handler that waits is the handler', async () => {
    const functions = { slow: { settings: { slo: '50ms' }, handler: slowHandler } };
    await scene(functions, ['--cpu-cores', '1'], async (run) => {
      await run.call('slow');
      for (let call = 0; call < 24; call++) expect(await run.call('slow')).toBe(200);
      const row = (await run.row('slow'))!;
      expect(row.causes[0]).toMatchObject({ cause: 'handler', words: 'in the handler' });
      expect(await run.top()).toContain('slow: in the handler');
      const counted = await run.metrics('slow');
      expect(Math.max(...Object.values(counted))).toBe(counted['handler']);
    });
  });

  test('of clients that leave within the SLO is none: that is no miss', async () => {
    const functions = { left: { settings: { slo: '30s' }, handler: slowHandler } };
    await scene(functions, ['--cpu-cores', '1'], async (run) => {
      const leave = new AbortController();
      const calls = Array.from({ length: 25 }, () => run.call('left', leave.signal));
      const inFlight = async (): Promise<number> => {
        const text = await (await fetch(`${run.host.url}/metrics`)).text();
        return Number(/^turntable_requests_in_flight (\d+)/m.exec(text)?.[1]);
      };
      await expect.poll(inFlight).toBeGreaterThan(0);
      leave.abort();
      await Promise.all(calls);
      await expect.poll(inFlight).toBe(0);
      expect(await run.trouble()).toMatchObject({ missing: 0, worst: [], overdue: { calls: 0 } });
      expect(await run.metrics('left')).toEqual({});
    });
  });

  test('of a first call that loads is none: few calls are no headline', async () => {
    await scene({ first: { settings: { slo: '1ms' } } }, ['--cpu-cores', '1'], async (run) => {
      expect(await run.call('first')).toBe(200);
      expect(await run.trouble()).toMatchObject({ missing: 0, worst: [], called: 1 });
      expect(await run.metrics('first')).toEqual({ load: 1 });
    });
  });

  test('of cores that other programs take is said with their share', async () => {
    const loops: ChildProcess[] = [];
    try {
      for (let core = 0; core < 2 * availableParallelism(); core++) {
        loops.push(spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
      }
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
      for (const loop of loops) loop.kill('SIGKILL');
    }
  });
});
