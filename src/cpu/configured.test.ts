/** Pools that run a configuration: their cores, what each instance gets, and how configurations change. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  largeBytes,
  poolLimits as limits,
  roomFor,
  ScheduledPools,
  valuesOf as values,
} from '../../test/support/cpu-pools.ts';
import { writeMeanModel, writeReluModel } from '../../test/support/models.ts';
import { waitLimitMs } from '../../test/time-limits.ts';
import { readLogicalCores, type LogicalCore } from '../hardware/index.ts';
import { tensorOf } from '../tensor/index.ts';
import {
  createCpuPools,
  type CpuPools,
  type CpuPoolsOptions,
  type InstanceSpec,
  type PoolConfiguration,
  type PoolInput,
  type PoolLimits,
  type PoolResult,
  type PoolState,
  type Reconfigured,
} from './index.ts';

let folder: string;
let reluPath: string;
let meanPath: string;
let pools: CpuPools;
const changes: Reconfigured[] = [];
const logged: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-configured-'));
  [reluPath, meanPath] = await Promise.all([writeReluModel(folder), writeMeanModel(folder)]);
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => pools?.stop(0));

const options: CpuPoolsOptions = {
  cores: 4,
  // More cores than exist, so that lists of several instances run on any machine. Pinning to a missing core fails
  // silently; the effect of pinning is tested on existing cores.
  logicalCores: Array.from({ length: 4 }, (_, id): LogicalCore => ({ id, socket: 0, core: id })),
  blankInstances: 0,
  memoryBytes: 4e9,
  log: (_pid, _key, line) => logged.push(line),
  onReconfigured: (change) => changes.push(change),
};

function start(own: Partial<CpuPoolsOptions> = {}): void {
  changes.length = 0;
  logged.length = 0;
  pools = createCpuPools({ ...options, ...own });
}

function register(key: string, overrides: Partial<InstanceSpec> = {}, limitOverrides: Partial<PoolLimits> = {}): void {
  pools.register({ key, modelPath: reluPath, threads: 1, ...overrides }, { ...limits, batchMax: 8, ...limitOverrides });
}

const thin: PoolConfiguration = { groups: [{ instances: 2, threads: 1, batch: 4 }] };
const thinOf = (instances: number): PoolConfiguration => ({ groups: [{ instances, threads: 1, batch: 4 }] });
const fat: PoolConfiguration = { groups: [{ instances: 1, threads: 2, batch: 8 }] };

/** The model answers with the content of `value`, so that an answer shows which request it belongs to. */
function input(value: number, rows = 1): PoolInput {
  const data = new Float32Array(rows * 4);
  for (let row = 0; row < rows; row++) data.fill(value + row, row * 4, row * 4 + 4);
  return { kind: 'tensors', tensors: [tensorOf('x', 'FP32', [rows, 4], data)] };
}

function state(key: string): PoolState {
  const found = pools.states().find((each) => each.key === key);
  if (found === undefined) throw new Error(`no pool ${key}`);
  return found;
}

const pidsOf = (key: string): number[] => state(key).instances.map(({ pid }) => pid);

/** Cores that the main thread of a process may run on. */
function allowedCores(pid: number, thread = pid): string {
  const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
  return /^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? '';
}

/** In the kernel's notation. */
function kernelList(cores: readonly LogicalCore[]): string {
  const ids = cores.map(({ id }) => id);
  const [first, last] = [ids[0] ?? 0, ids.at(-1) ?? 0];
  return ids.length > 1 && last - first === ids.length - 1 ? `${first}-${last}` : ids.join(',');
}

describe('a configuration', () => {
  it('runs its instances on cores of their own, and says so', async () => {
    start();
    register('f');
    const configuration = {
      groups: [
        { instances: 1, threads: 2, batch: 8 },
        { instances: 2, threads: 1, batch: 4 },
      ],
    };
    const outcome = await pools.configure('f', configuration, 'test');
    expect(outcome).toMatchObject({ state: 'done', kind: 'switch', configuration });
    const { instances, startMs, starting } = state('f');
    expect(instances.map(({ threads, cores }) => [threads, cores.length])).toEqual([
      [2, 2],
      [1, 1],
      [1, 1],
    ]);
    expect(new Set(instances.flatMap(({ cores }) => cores)).size).toBe(4);
    expect(pools.resources().coresUnleased).toBe(0);
    expect(starting).toBeUndefined();
    expect(startMs).toBeGreaterThan(0);
    expect(changes).toMatchObject([{ key: 'f', cause: 'test', state: 'done', from: undefined, to: configuration }]);
  });

  it('splits a full batch by its list and gives each request its own rows', async () => {
    start();
    register('f');
    await pools.configure(
      'f',
      {
        groups: [
          { instances: 1, threads: 2, batch: 6 },
          { instances: 2, threads: 1, batch: 3 },
        ],
      },
      'test',
    );
    const results = await Promise.all(Array.from({ length: 12 }, (_, i) => pools.invoke('f', input(i))));
    expect(results.map((result) => values(result)[0])).toEqual(Array.from({ length: 12 }, (_, i) => i));
    const perInstance = new Map<number, number>();
    for (const { instancePid } of results) perInstance.set(instancePid, (perInstance.get(instancePid) ?? 0) + 1);
    expect([...perInstance.values()].sort((a, b) => a - b)).toEqual([3, 3, 6]);
    expect(results.map(({ batchSize }) => batchSize).sort((a, b) => a - b)).toEqual([
      ...Array<number>(6).fill(3),
      ...Array<number>(6).fill(6),
    ]);
    expect(results.every(({ coldStart }) => !coldStart)).toBe(true);
  });

  it('spreads a smaller batch over all its instances', async () => {
    start();
    register('f');
    await pools.configure('f', { groups: [{ instances: 2, threads: 1, batch: 8 }] }, 'test');
    const results = await Promise.all(Array.from({ length: 4 }, (_, i) => pools.invoke('f', input(i))));
    expect(new Set(results.map(({ instancePid }) => instancePid)).size).toBe(2);
    expect(results.map(({ batchSize }) => batchSize)).toEqual([2, 2, 2, 2]);
  });

  it('gets from the scheduler as many calls at once as fill its batch', async () => {
    const scheduled = new ScheduledPools(options);
    pools = scheduled.pools;
    scheduled.register({ key: 'f', modelPath: reluPath, threads: 1 }, { ...limits, batchMax: 8 });
    // By the offer from before the configuration fewer calls would come than fill the batch, and wait for its timeout.
    await scheduled.invoke('f', input(0));
    await pools.configure('f', { ...thin, batchTimeoutMs: waitLimitMs }, 'test');
    const results = await Promise.all(Array.from({ length: 8 }, (_, at) => scheduled.invoke('f', input(at))));
    expect(results.map(({ batchSize }) => batchSize)).toEqual(results.map(() => 4));
  });

  it('waits for its batch to fill no longer than its timeout, and not past a deadline', async () => {
    start();
    register('f');
    await pools.configure('f', { ...thin, batchTimeoutMs: 20_000 }, 'test');
    const filled = await Promise.all(Array.from({ length: 8 }, (_, i) => pools.invoke('f', input(i))));
    expect(filled.map(({ batchSize }) => batchSize)).toEqual(Array<number>(8).fill(4));
    const hurried = await pools.invoke('f', input(7), { deadlineMs: performance.now() + 2000 });
    expect(values(hurried)[0]).toBe(7);
    // Well before the 20 s that the batch may take to fill: its deadline ended the wait.
    expect(hurried.timings.queueMs).toBeLessThan(15_000);
    await pools.configure('f', { ...thin, batchTimeoutMs: 30 }, 'test');
    const alone = await pools.invoke('f', input(3));
    expect(values(alone)[0]).toBe(3);
    expect(alone.timings.queueMs).toBeGreaterThan(20);
  });

  it.each<[string, PoolConfiguration, Partial<PoolLimits>, string]>([
    ['more threads than cores', { groups: [{ instances: 3, threads: 2, batch: 1 }] }, {}, 'its instances need 6 cores'],
    ['batches that the model does not take', thin, { batchFixed: 1 }, "take 4 rows each, but the model's batch dimension is fixed to 1"],
  ])('of %s is refused in words, and nothing changes', async (_what, configuration, limitOverrides, reason) => {
    start();
    register('f', {}, limitOverrides);
    const outcome = await pools.configure('f', configuration, 'test');
    expect(outcome).toMatchObject({ state: 'refused', configuration: undefined, reason: expect.stringContaining(reason) as string });
    expect(values(await pools.invoke('f', input(1)))).toEqual([1, 1, 1, 1]);
  }); // prettier-ignore

  it('runs a request of more rows than an instance takes whole, on one of them', async () => {
    start();
    register('f', { modelPath: meanPath });
    await pools.configure('f', { groups: [{ instances: 2, threads: 1, batch: 2 }] }, 'test');
    expect(values(await pools.invoke('f', input(1, 5)))).toEqual([3]);
  });

  it('of a model whose batch is fixed runs one request at a time on each instance', async () => {
    start();
    register('f', {}, { batchFixed: 2 });
    await pools.configure('f', { groups: [{ instances: 2, threads: 1, batch: 2 }] }, 'test');
    const results = await Promise.all(Array.from({ length: 6 }, (_, i) => pools.invoke('f', input(10 * i, 2))));
    expect(results.map((result) => values(result).filter((_, at) => at % 4 === 0))).toEqual(
      Array.from({ length: 6 }, (_, i) => [10 * i, 10 * i + 1]),
    );
    expect(results.every(({ batchSize }) => batchSize === 1)).toBe(true);
  });

  it('is kept off the cores of another function', async () => {
    start();
    register('a');
    register('b');
    expect(pools.coresFor('a')).toBe(4);
    await pools.configure('a', { groups: [{ instances: 3, threads: 1, batch: 1 }] }, 'test');
    expect(pools.coresFor('b')).toBe(1);
    expect(await pools.configure('b', fat, 'test')).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('leased to other functions') as string,
    });
    expect(await pools.configure('b', { groups: [{ instances: 1, threads: 1, batch: 1 }] }, 'test')).toMatchObject({
      state: 'done',
    });
    expect(pools.coresFor('a')).toBe(2);
    const cores = [...state('a').instances, ...state('b').instances].flatMap((instance) => instance.cores);
    expect(new Set(cores).size).toBe(4);
  });

  it('goes with its function: unload, unregister, and long idleness give the cores back', async () => {
    start({ onIdle: ({ key }) => void pools.evict(key, { isIdle: true }) });
    register('a');
    register('b');
    register('c', {}, { idleMs: 0 });
    await pools.configure('a', { groups: [{ instances: 1, threads: 1, batch: 1 }] }, 'test');
    await pools.configure('b', { groups: [{ instances: 1, threads: 1, batch: 1 }] }, 'test');
    await pools.unload('a');
    expect(state('a')).toMatchObject({ instances: [], configuration: undefined });
    expect(pools.resources().coresUnleased).toBe(3);
    await pools.unregister('b');
    expect(pools.resources().coresUnleased).toBe(4);
    await pools.configure('c', { groups: [{ instances: 4, threads: 1, batch: 1 }] }, 'test');
    await expect.poll(() => pools.resources().coresUnleased).toBe(4);
    expect(values(await pools.invoke('a', input(5)))[0]).toBe(5);
    expect(changes.map(({ cause }) => cause)).toEqual(['test', 'test', 'unload', 'unload', 'test', 'idle']);
  });

  it('once released is not started again by earlier calls or by a change under way', async () => {
    start({ onIdle: ({ key }) => void pools.evict(key, { isIdle: true }) });
    register('a');
    register('b', {}, { idleMs: 0 });
    register('c', {}, { idleMs: 0 });
    await pools.configure('a', thin, 'test');
    await pools.configure('b', thin, 'test');
    for (const key of ['a', 'b', 'c']) await pools.invoke(key, input(1));
    const begun = pools.configure('a', fat, 'begun');
    await pools.unload('a');
    expect(await begun).toMatchObject({ state: 'failed', configuration: undefined });
    // `b` is configured but uncalled, and `c` ran on demand.
    for (const key of ['a', 'b', 'c']) {
      await expect.poll(() => state(key).instances).toEqual([]);
      expect(state(key)).toMatchObject({ arrivalsPerSecond: 0, configuration: undefined, starting: undefined });
    }
    // Only calls from now on count.
    await pools.invoke('a', input(1));
    expect(state('a').arrivalsPerSecond).toBeGreaterThan(0);
  });
});

describe.skipIf(process.platform !== 'linux')('an instance', () => {
  const here = readLogicalCores();

  it('has its threads pinned to its cores, the one that runs the model to the first', async () => {
    start({ cores: here.length, logicalCores: here });
    register('f');
    const threads = Math.min(2, here.length);
    await pools.configure('f', { groups: [{ instances: 1, threads, batch: 1 }] }, 'test');
    const [instance] = state('f').instances;
    const { pid, cores } = instance ?? { pid: 0, cores: [] };
    expect(allowedCores(pid)).toBe(String(cores[0]));
    // Each of ONNX Runtime's own threads has one of the other cores for itself.
    const pinned = (await readdir(`/proc/${pid}/task`)).map((thread) => allowedCores(pid, Number(thread)));
    for (const core of cores) expect(pinned).toContain(String(core));
  });

  it('on demand keeps to the cores that are not leased', async () => {
    const two = here.slice(0, 2);
    start({ cores: two.length, logicalCores: two });
    register('on-demand');
    register('f');
    const { instancePid } = await pools.invoke('on-demand', input(1));
    await pools.configure('f', { groups: [{ instances: 1, threads: 1, batch: 1 }] }, 'test');
    const leased = state('f').instances[0]?.cores[0];
    const expected = two.length === 1 ? two : two.filter(({ id }) => id !== leased);
    expect(allowedCores(instancePid)).toBe(expected.map(({ id }) => id).join(','));
    await pools.unload('f');
    await expect.poll(() => allowedCores(instancePid)).toBe(kernelList(two));
  });
});

describe('a change of configuration', () => {
  it('that only adds or drops instances keeps the others running', async () => {
    start();
    register('f');
    await pools.configure('f', thin, 'start');
    const before = pidsOf('f');
    const more = { groups: [{ instances: 3, threads: 1, batch: 2 }] };
    expect(await pools.configure('f', more, 'grow')).toMatchObject({
      state: 'done',
      kind: 'scale',
      configuration: more,
    });
    expect(pidsOf('f')).toEqual(expect.arrayContaining(before));
    expect(pidsOf('f')).toHaveLength(3);
    const fewer = { groups: [{ instances: 1, threads: 1, batch: 16 }] };
    expect(await pools.configure('f', fewer, 'shrink')).toMatchObject({ state: 'done', kind: 'scale' });
    await expect.poll(() => pidsOf('f').length).toBe(1);
    expect(pools.resources().coresUnleased).toBe(3);
    const results = await Promise.all(Array.from({ length: 16 }, (_, i) => pools.invoke('f', input(i))));
    expect(results.map(({ batchSize }) => batchSize)).toEqual(Array<number>(16).fill(16));
    expect(await pools.configure('f', fewer, 'again')).toMatchObject({ state: 'done', kind: 'none' });
  });

  it('of threads goes active-passive: no call waits, and the old set ends', async () => {
    start();
    register('f');
    await pools.configure('f', { groups: [{ instances: 4, threads: 1, batch: 4 }] }, 'start');
    const before = new Set(pidsOf('f'));
    const change = pools.configure('f', { groups: [{ instances: 1, threads: 4, batch: 16 }] }, 'threads');
    // The cores are taken, so the new set shares them while both live.
    expect(state('f').starting).toEqual({ groups: [{ instances: 1, threads: 4, batch: 16 }] });
    const served: PoolResult[] = [];
    for (let i = 0; !changes.some(({ cause }) => cause === 'threads'); i++) {
      const result = await pools.invoke('f', input(i));
      expect(values(result)[0]).toBe(i);
      served.push(result);
    }
    expect(await change).toMatchObject({ state: 'done', kind: 'switch' });
    expect(served.length).toBeGreaterThan(1);
    expect(served.every(({ coldStart }) => !coldStart)).toBe(true);
    const after = await pools.invoke('f', input(1));
    expect(before.has(after.instancePid)).toBe(false);
    await expect.poll(() => pidsOf('f').filter((pid) => before.has(pid))).toEqual([]);
    expect(state('f')).toMatchObject({ instances: [{ threads: 4, cores: [0, 1, 2, 3] }] });
    expect(pools.resources().coresUnleased).toBe(0);
  });

  it('whose instances cannot be started leaves the active set serving, and says why', async () => {
    start();
    const modelPath = join(folder, 'goes-away.onnx');
    await writeFile(modelPath, await readFile(reluPath));
    register('f', { modelPath });
    await pools.configure('f', thin, 'start');
    const before = pidsOf('f');
    await rm(modelPath);
    expect(await pools.configure('f', fat, 'threads')).toMatchObject({
      state: 'failed',
      kind: 'switch',
      configuration: thin,
      reason: expect.stringContaining("doesn't exist") as string,
    });
    expect(await pools.configure('f', { groups: [{ instances: 3, threads: 1, batch: 4 }] }, 'grow')).toMatchObject({
      state: 'failed',
      kind: 'scale',
      configuration: thin,
    });
    expect(values(await pools.invoke('f', input(9)))[0]).toBe(9);
    expect(pidsOf('f')).toEqual(before);
    expect(pools.resources().coresUnleased).toBe(2);
  });

  it('beyond the memory of all functions is refused with a message, and the active configuration stays', async () => {
    start(roomFor(2));
    register('f', { modelBytes: largeBytes });
    await pools.configure('f', thin, 'start');
    await pools.invoke('f', input(1));
    const before = pidsOf('f');
    const reason = expect.stringContaining(
      'there is no room for it in the memory that all functions share (cpu.memory)',
    ) as string;
    // The old instances serve until the new ones are ready, so that both need memory.
    for (const next of [thinOf(3), fat, { groups: [...fat.groups, ...thin.groups] }]) {
      const outcome = await pools.configure('f', next, 'test');
      expect(outcome).toMatchObject({ state: 'refused', configuration: thin, reason });
    }
    expect(values(await pools.invoke('f', input(6)))[0]).toBe(6);
    expect(pidsOf('f')).toEqual(before);
    expect(pools.resources().coresUnleased).toBe(2);
  });

  it('in full memory takes the room of functions that are called less, and no call waits', async () => {
    const scheduled = new ScheduledPools({ ...options, ...roomFor(3) });
    ({ pools } = scheduled);
    for (const key of ['f', 'other', 'third'])
      scheduled.register({ key, modelPath: reluPath, threads: 1, modelBytes: largeBytes }, { ...limits, batchMax: 8 });
    await scheduled.invoke('other', input(1));
    await scheduled.invoke('third', input(1));
    // Called far more often: that outweighs a slow load of the others on a busy machine.
    for (let calls = 0; calls < 50; calls++) await scheduled.invoke('f', input(1));
    for (const next of [thin, fat]) {
      const before = pidsOf('f');
      const change = pools.configure('f', next, 'test');
      expect((await scheduled.invoke('f', input(2))).coldStart).toBe(false);
      expect(await change).toMatchObject({ state: 'done', kind: 'switch', configuration: next });
      expect((await scheduled.invoke('f', input(3))).coldStart).toBe(false);
      await expect.poll(() => pidsOf('f').filter((pid) => before.includes(pid))).toEqual([]);
    }
    expect([...pidsOf('other'), ...pidsOf('third')]).toEqual([]);
    expect(pools.resources().memoryUsedBytes).toBeLessThanOrEqual(pools.resources().memoryBytes);
  });

  it('happens when configurations hold all memory and another function needs its first instance', async () => {
    changes.length = 0;
    const scheduled = new ScheduledPools({ ...options, ...roomFor(3) });
    ({ pools } = scheduled);
    for (const key of ['f', 'second', 'third', 'fourth'])
      scheduled.register({ key, modelPath: reluPath, threads: 1, modelBytes: largeBytes }, { ...limits, batchMax: 8 });
    await pools.configure('f', thin, 'start');
    await pools.configure('second', thinOf(1), 'start');
    const before = pidsOf('f');
    // Calls never stop, so idleness causes none of this.
    const end = new AbortController();
    const served: PoolResult[] = [];
    const endless = async (): Promise<void> => {
      while (!end.signal.aborted) served.push(await scheduled.invoke('f', input(1)));
    };
    const load = Promise.all([endless(), endless()]);
    expect(values(await scheduled.invoke('third', input(2)))[0]).toBe(2);
    expect(state('f').configuration).toEqual(thinOf(1));
    expect(before).toEqual(expect.arrayContaining(pidsOf('f')));
    expect(served.some(({ coldStart }) => coldStart)).toBe(false);
    expect(values(await scheduled.invoke('fourth', input(3)))[0]).toBe(3);
    end.abort();
    await load;
    // Each had one instance left then; the one that was never called gave up its own.
    expect(changes.map(({ cause, kind }) => [cause, kind])).toEqual([
      ['start', 'switch'],
      ['start', 'switch'],
      ['room', 'scale'],
      ['room', 'switch'],
    ]);
  });

  it('is one at a time: another is refused until it is over', async () => {
    start();
    register('f');
    const outcomes = await Promise.all(
      [thin, fat, { groups: [{ instances: 3, threads: 1, batch: 1 }] }].map((configuration) =>
        pools.configure('f', configuration, 'test'),
      ),
    );
    expect(outcomes.map((outcome) => [outcome.state, outcome.kind])).toEqual([
      ['done', 'switch'],
      ['refused', 'none'],
      ['refused', 'none'],
    ]);
    expect(state('f')).toMatchObject({ configuration: thin, starting: undefined });
  });

  it('fails no request however often instances are killed meanwhile', async () => {
    start();
    register('f');
    const lists: PoolConfiguration[] = [
      { groups: [{ instances: 2, threads: 1, batch: 4 }] },
      {
        groups: [
          { instances: 1, threads: 2, batch: 8 },
          { instances: 1, threads: 1, batch: 2 },
        ],
      },
      { groups: [{ instances: 4, threads: 1, batch: 2 }] },
    ];
    await pools.configure('f', lists[0]!, 'start');
    const total = 600;
    const answered = new Map<number, number>();
    const pending: Promise<unknown>[] = [];
    let killed = 0;
    const kill = (pid: number | undefined): void => {
      if (pid === undefined) return;
      process.kill(pid, 'SIGKILL');
      killed++;
    };
    // Kills and changes are tied to progress rather than to time.
    const one = async (i: number): Promise<void> => {
      const result = await pools.invoke('f', input(i));
      expect(values(result)).toEqual([i, i, i, i]);
      answered.set(i, (answered.get(i) ?? 0) + 1);
      if (i % 150 === 40) pending.push(pools.configure('f', lists[((i / 10) % lists.length) | 0]!, `at ${i}`));
      if (i % 60 === 45) kill(state('f').instances.find((instance) => instance.state === 'busy')?.pid);
      if (i % 150 === 100) kill(state('f').instances.find((instance) => instance.state === 'loading')?.pid);
    };
    let next = 0;
    await Promise.all(
      Array.from({ length: 24 }, async () => {
        while (next < total) await one(next++);
      }),
    );
    await Promise.all(pending);
    expect(killed).toBeGreaterThan(5);
    expect([...answered.values()]).toEqual(Array<number>(total).fill(1));
  });

  it('leaves a request that kills every instance to fail alone', async () => {
    start();
    const handlerPath = join(folder, 'killer.mjs');
    await writeFile(
      handlerPath,
      `export function preprocess(request) {
         if (request.text() === 'die') process.kill(process.pid, 'SIGKILL');
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess(tensors) { return Array.from(tensors[0].data); }`,
    );
    register('f', { handlerPath });
    await pools.configure('f', { groups: [{ instances: 2, threads: 1, batch: 8 }] }, 'test');
    const call = (text: string): Promise<PoolResult> =>
      pools.invoke('f', {
        kind: 'request',
        request: { method: 'POST', url: '/', headers: {}, body: Buffer.from(text) },
      });
    const outcomes = await Promise.allSettled(['live', 'die', 'live', 'live'].map(call));
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(outcomes[1]).toMatchObject({ reason: { code: 'instance-died' } });
  });
});
