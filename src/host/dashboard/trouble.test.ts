import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { CpuInfo } from 'node:os';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FakeStore, functionVersion } from '../../../test/host/fake-store.ts';
import { ranOnCpu } from '../../../test/support/ran-on-cpu.ts';
import { isStopped, processorUse } from '../../process/index.ts';
import { History, Usage } from '../history/index.ts';
import type { MissCause } from '../calls/miss-causes.ts';
import type { Overdue } from '../calls/open-calls.ts';
import type { Placement } from '../calls/placement.ts';
import { Statistics } from '../records/statistics.ts';
import { troubleAnswer } from './trouble.ts';
import type { ViewSources } from './views.ts';

const core = (user: number): CpuInfo => ({ model: '', speed: 0, times: { user, nice: 0, sys: 0, idle: 0, irq: 0 } });
const advised = 'Other programs use the cores: give Turntable a machine or cores of its own.';

const places = {
  cpu: { kind: 'cpu-pool', coldStart: false },
  gpu: { kind: 'gpu', gpu: 0, start: 'warm', mode: '' },
  remote: { kind: 'other', coldStart: false, where: 'remote worker w' },
} as const satisfies Record<string, Placement>;

interface Options {
  /** GPUs that have its weights. */
  readonly onGpus?: readonly number[];
  readonly memoryUsedBytes?: number;
  /** Why no GPU can run it. */
  readonly whyNot?: string | null;
  readonly gpuPid?: number;
  /** Of its instance. */
  readonly pid?: number;
}

/** A process that a signal has stopped. */
async function stoppedProcess(): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => undefined, 1e6)'], { stdio: 'ignore' });
  child.kill('SIGSTOP');
  await expect.poll(() => isStopped(child.pid!)).toBe(true);
  return child;
}

/** A host with one GPU, whose cores other programs take. */
class Host {
  readonly history = new History();
  readonly #sources: ViewSources;
  readonly overdue = new Map<string, Overdue>();
  /** Of the GPU process. */
  silentMs = 0;

  constructor({ onGpus = [0], memoryUsedBytes = 0, whyNot = null, gpuPid = process.pid, pid }: Options = {}) {
    const registry = new FakeStore();
    registry.put(functionVersion('f'));
    let readings = 0;
    const now = { memoryUsedBytes, waiting: 0, inFlight: 0, atWorkers: 0, gpus: [0.1], linkBytes: [] };
    const usage = new Usage(
      () => now,
      undefined,
      () => [core(1000 * readings++)],
      () => 0,
    );
    usage.sample(Date.now());
    usage.close();
    const presence = () => ({ gpus: onGpus, state: { kind: whyNot === null ? 'planned' : 'refused', whyNot } });
    const state = () => (pid === undefined ? undefined : { instances: [{ pid }], queueLength: 0 });
    this.#sources = {
      registry,
      history: this.history,
      usage,
      pools: { state, resources: () => ({ memoryUsedBytes, memoryBytes: 100e6 }) },
      statistics: new Statistics(),
      open: { overdue: () => this.overdue },
      dependencies: { troubled: () => [] },
      workers: () => [],
      gpus: { presence, process: () => ({ pid: gpuPid, silentMs: this.silentMs }) },
    } as unknown as ViewSources;
  }

  /** @param placement of its answer; undefined: its client left */
  late(cause: MissCause, placement: Placement | undefined): void {
    this.history.record({
      key: 'f@1',
      functionName: 'f',
      version: '1',
      rows: 1,
      hasRun: true,
      arrivalMs: performance.now() - 200,
      latencyMs: 200,
      sloMs: 100,
      outcome: 'late',
      miss: { cause, lateMs: 100, unexplainedMs: 0 },
      ...(placement === undefined ? {} : { ran: { ...ranOnCpu({}), placement } }),
    });
  }

  async trouble() {
    return await troubleAnswer(this.#sources, 60_000, Date.now());
  }

  async row() {
    return (await this.trouble()).worst[0]!;
  }

  left(why: string, where: string): void {
    const event = { functionName: 'f', cause: why, why, by: undefined, ageMs: 1000, where };
    this.history.eventLog.add({ kind: 'eviction', ...event });
  }
}

describe('full cores', () => {
  test('full cores of other programs are advised against if runs waited for them, and not if GPUs or other machines ran the calls', async () => {
    const count = fc.nat({ max: 12 });
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom<MissCause>('queue', 'load', 'model', 'shed'),
        fc.record({ cpu: count, gpu: count, remote: count }).filter(({ cpu, gpu, remote }) => cpu + gpu + remote >= 20),
        async (cause, calls) => {
          const host = new Host();
          for (const place of ['cpu', 'gpu', 'remote'] as const)
            for (let call = 0; call < calls[place]; call++) host.late(cause, places[place]);
          const { advice } = await host.row();
          const onCores = calls.cpu >= 0.2 * (calls.cpu + calls.gpu + calls.remote);
          expect(advice?.includes(advised) ?? false).toBe(onCores);
        },
      ),
      { numRuns: 30 },
    );
  });

  test('full cores are no advice while calls may wait for a GPU, wherever earlier ones ran, and whether it has the function yet', async () => {
    for (const onGpus of [[0], []])
      for (const whyNot of [null, 'an operator is missing']) {
        const host = new Host({ onGpus, whyNot });
        for (let call = 0; call < 20; call++) host.late('queue', places.cpu);
        host.overdue.set('f', { calls: 3, oldestMs: 3000, stages: { turn: 3 }, longestMs: { turn: 3000 } });
        expect((await host.row()).advice).toBe(whyNot === null ? null : advised);
      }
  });

  test('full cores are no advice where clients left without an answer that may have waited for a GPU', async () => {
    for (const whyNot of [null, 'an operator is missing']) {
      const host = new Host({ onGpus: [], whyNot });
      for (let call = 0; call < 20; call++) host.late('queue', places.cpu);
      host.late('queue', undefined);
      expect((await host.row()).advice).toBe(whyNot === null ? null : advised);
    }
  });

  test('full cores are advised against where the host itself or a handler needs them, wherever the model runs', async () => {
    for (const cause of ['busy', 'body', 'handler'] as const) {
      const host = new Host();
      for (let call = 0; call < 20; call++) host.late(cause, places.gpu);
      expect((await host.row()).advice).toContain(advised);
    }
  });
});

describe('a GPU process that went down', () => {
  test('a GPU process that went down is what calls waited for that ran on cores meanwhile, until it was before the range', async () => {
    for (const cause of ['queue', 'load', 'model'] as const) {
      const host = new Host({ onGpus: [] });
      for (let call = 0; call < 20; call++) host.late(cause, places.cpu);
      const { eventLog } = host.history;
      const down = (gpuDown: string, atMs: number) =>
        eventLog.add({ kind: 'host', level: 'warning', message: `The GPU process is down: ${gpuDown}`, gpuDown }, atMs);
      down('it was ended by SIGKILL', Date.now() - 100_000);
      expect((await host.row()).facts).not.toContain('GPU process');

      down('it has not answered for 10 s', Date.now());
      // Breaches of many functions do not push it out.
      for (let breach = 0; breach < 600; breach++)
        eventLog.add({ kind: 'slo-breach', functionName: `f${breach % 20}`, late: 1, sloMs: 100 });
      const { facts, advice } = await host.row();
      expect(facts).toBe('the GPU process went down once: it has not answered for 10 s');
      expect(advice).toMatch(/^Calls waited for the GPU process/);
    }
  });
});

describe('a process in which nothing runs', () => {
  test('a process in which nothing runs is named at once if a signal has stopped it, and cores are not to blame', async () => {
    const stopped = await stoppedProcess();
    try {
      for (const [options, facts] of [
        [{ gpuPid: stopped.pid! }, 'the GPU process is stopped'],
        [{ pid: stopped.pid!, whyNot: 'an operator is missing' }, `its process ${stopped.pid} is stopped`],
      ] as const) {
        const host = new Host(options);
        for (let call = 0; call < 20; call++) host.late('queue', places.cpu);
        const row = await host.row();
        expect(row.facts).toBe(facts);
        expect(row.advice).toContain(`kill -CONT ${stopped.pid}`);
        expect(row.advice).not.toContain(advised);
      }
    } finally {
      stopped.kill('SIGKILL');
    }
  });

  test('a process in which nothing runs is the GPU process once it has left pings unanswered for two seconds, for functions that may wait for it', async () => {
    for (const whyNot of [null, 'an operator is missing']) {
      const code = `setInterval(() => undefined, 1e6); setTimeout(() => console.log('started'));`;
      const asleep = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
      try {
        // Before that it may sleep for a moment, and go on.
        await once(asleep.stdout, 'data');
        await expect.poll(() => processorUse(asleep.pid!)?.state).toBe('S');
        const host = new Host({ whyNot, gpuPid: asleep.pid! });
        for (let call = 0; call < 20; call++) host.late('load', places.cpu);
        const silent = async (silentMs: number): Promise<boolean> => {
          host.silentMs = silentMs;
          return (await host.row()).facts.includes('the GPU process has not answered for 2 s');
        };
        expect([await silent(1000), await silent(2000)]).toEqual([false, whyNot === null]);
      } finally {
        asleep.kill('SIGKILL');
      }
    }
  });
});

test('waits for a slow disk are said beside why a model was loaded, with what was read', async () => {
  const host = new Host({ whyNot: 'an operator is missing' });
  for (let call = 0; call < 20; call++) host.late('load', places.cpu);
  host.history.readDisk('f', { bytes: 33e6, ms: 20 });
  expect((await host.row()).facts).not.toContain('disk');
  host.history.readDisk('f', { bytes: 33e6, ms: 4000 });
  const { facts, advice } = await host.row();
  expect(facts).toContain('its instances waited 4.02 s for 66 MB from the disk (16.4 MB/s)');
  expect(advice).toContain('The disk is slow');
});

test('calls that waited for a worker that fell silent name it', async () => {
  const host = new Host();
  for (let call = 0; call < 20; call++) host.late('away', places.cpu);
  expect((await host.row()).facts).toBe('workers that take calls: 0');
  const lost = { kind: 'host', level: 'warning', message: '', workerLost: 'lab-7' } as const;
  for (let time = 0; time < 2; time++) host.history.eventLog.add(lost);
  const { facts, advice } = await host.row();
  expect(facts).toBe('fell silent 2 times: lab-7; workers that take calls: 0');
  expect(advice).toContain('whether lab-7 is stopped, starved or cut off');
});

test('requests over a limit are a sentence of their own, with the caller of the latest, and no trouble of a function', async () => {
  const host = new Host();
  for (const name of ['a', 'b'])
    for (let request = 0; request < 600; request++)
      host.history.errors.add({ status: 429, code: 'rate-limited', message: `the API key '${name}' ...` }, Date.now());
  host.history.errors.add({ status: 400, code: 'bad-tensor', message: 'no number' }, Date.now());
  const { limited, missing } = await host.trouble();
  expect(limited).toEqual(["1,200 requests were over a limit (429 rate-limited), the latest: the API key 'b' ...."]);
  expect(missing).toBe(0);
});

describe('evictions for room', () => {
  test('evictions for room are named with the limit, however many seconds of late calls came after them', async () => {
    const host = new Host({ memoryUsedBytes: 99e6 });
    for (let time = 0; time < 7; time++) host.left('room', 'the CPU pool');
    for (let second = 0; second < 100; second++)
      host.history.eventLog.add({ kind: 'slo-breach', functionName: 'f', late: 1, sloMs: 100 });
    for (let call = 0; call < 20; call++) host.late('load', places.cpu);
    expect((await host.row()).facts).toMatch(/^evicted 7 times: up to 99 MB of 100 MB used \(cpu\.memory\); cores /);
  });

  test("evictions for room are no reason for a first load onto a GPU, however full the cores' memory is", async () => {
    for (const [placement, facts] of [
      [places.gpu, 'its first use: nothing had loaded it'],
      [places.cpu, 'its first use: nothing had loaded it, and memory is full: up to 99 MB of 100 MB used (cpu.memory)'],
    ] as const) {
      const host = new Host({ memoryUsedBytes: 99e6 });
      for (let call = 0; call < 20; call++) host.late('load', placement);
      expect((await host.row()).facts.split('; ')[0]).toBe(facts);
    }
  });
});
