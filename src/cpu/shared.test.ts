/** Functions that share processes: when they do, what each has of its own, and how far one can harm another. */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  bodyOf as text,
  poolLimits as limits,
  requestOf,
  rowsOfFour,
  ScheduledPools,
  valuesOf,
} from '../../test/support/cpu-pools.ts';
import { writeReluModel } from '../../test/support/models.ts';
import { describeModel, ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';
import { runBytesOf } from '../operators/index.ts';
import { canGoOffline } from '../process/index.ts';
import {
  createCpuPools,
  type CpuPools,
  type CpuPoolsOptions,
  type GivenUp,
  type InstanceSpec,
  type PoolInput,
  type PoolFacts,
  type PoolLimits,
  type PoolResult,
} from './index.ts';

const mebibyte = 2 ** 20;
let folder: string;
let reluPath: string;
let pools: CpuPools;
let scheduled: ScheduledPools | undefined;
let handlers = 0;
const givenUp: GivenUp[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-shared-'));
  reluPath = await writeReluModel(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  vi.restoreAllMocks();
  await pools.stop(0);
});

function start(options: Partial<CpuPoolsOptions> = {}): void {
  givenUp.length = 0;
  scheduled = undefined;
  pools = createCpuPools({
    cores: 2,
    blankInstances: 0,
    memoryBytes: 4e9,
    log: () => undefined,
    onGivenUp: (given) => givenUp.push(given),
    ...options,
  });
}

/** Starts the pools behind a scheduler, which decides whose session is closed. */
function startScheduled(options: Partial<CpuPoolsOptions>): void {
  givenUp.length = 0;
  scheduled = new ScheduledPools({ onGivenUp: (given) => givenUp.push(given), ...options });
  ({ pools } = scheduled);
}

function register(key: string, spec: Partial<InstanceSpec> = {}, change: Partial<PoolLimits> = {}): void {
  (scheduled ?? pools).register({ key, modelPath: reluPath, threads: 1, ...spec }, { ...limits, ...change });
}

/** Registers a function with a handler. `pre` runs in its `preprocess`, `post` in its `postprocess`. */
async function withHandler(
  key: string,
  { module = '', pre = '', post = "return 'ok'" },
  change: Partial<PoolLimits> = {},
) {
  const handlerPath = join(folder, `handler-${handlers++}.mjs`);
  await writeFile(
    handlerPath,
    `${module}
     export async function preprocess(request) {
       ${pre}
       return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
     }
     export async function postprocess(tensors, request) { ${post} }`,
  );
  register(key, { handlerPath }, change);
  return handlerPath;
}

const input = (value: number): PoolInput => rowsOfFour(value, -value, value, -value);
const call = (key: string, value: number): Promise<PoolResult> => (scheduled ?? pools).invoke(key, input(value));
const request = (key: string, body = ''): Promise<PoolResult> => (scheduled ?? pools).invoke(key, requestOf(body));
const first = (result: PoolResult): number | undefined => valuesOf(result)[0];
const instancesOf = (key: string) => pools.state(key)?.instances ?? [];
/** Where its instances are that have work. */
const busyOf = (key: string): string[] =>
  instancesOf(key).flatMap(({ state, isShared }) => (state === 'busy' ? [isShared === true ? 'shared' : 'alone'] : []));
const pidOf = (key: string): number => instancesOf(key)[0]?.pid ?? 0;
/** Resident memory, in MiB, of the process that has the function's session. */
async function residentMiB(key: string): Promise<number> {
  const status = await readFile(`/proc/${pidOf(key)}/status`, 'utf8');
  return Number(/^VmRSS:\s*(\d+)/m.exec(status)?.[1]) / 1024;
}

/** Minor page faults of the function's process so far. */
async function pageFaults(key: string): Promise<number> {
  const stat = await readFile(`/proc/${pidOf(key)}/stat`, 'utf8');
  // The fields after the process name, which may have spaces: state, parent, group, session, terminal, its group,
  // flags, minor faults.
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[7]);
}
/** Bytes of the largest intermediate result of the model 'wide'. */
const wideBytes = 96 * mebibyte;
const wideRows = wideBytes / 16;

const keys = (count: number): string[] => Array.from({ length: count }, (_, i) => `f${i}`);

/** The system call filter of a function's process: 0 none, 2 one of its own. */
async function filterOf(key: string): Promise<{ readonly seccomp: string; readonly noNewPrivileges: string }> {
  const status = await readFile(`/proc/${pidOf(key)}/status`, 'utf8');
  const of = (name: string): string => new RegExp(`^${name}:\\s*(\\d)`, 'm').exec(status)?.[1] ?? '';
  return { seccomp: of('Seccomp'), noNewPrivileges: of('NoNewPrivs') };
}

test.skipIf(!canGoOffline())('models without handlers are kept off the network in processes of their own', async () => {
  const networkOf = `const { createConnection } = await import('node:net');
    return await new Promise((resolve) => createConnection(1, '127.0.0.1').on('error', ({ code }) => resolve(code)));`;
  start({ modelsOffline: true, cores: 1 });
  await withHandler('handled', { post: networkOf });
  register('plain');
  register('other');
  expect(text(await request('handled'))).toBe('ECONNREFUSED');
  expect(first(await call('plain', 3))).toBe(3);
  expect(first(await call('other', 4))).toBe(4);
  expect(pidOf('other')).toBe(pidOf('plain'));
  expect(pidOf('handled')).not.toBe(pidOf('plain'));
  expect(await filterOf('plain')).toEqual({ seccomp: '2', noNewPrivileges: '1' });
  expect(await filterOf('handled')).toEqual({ seccomp: '0', noNewPrivileges: '1' });
});

describe('shared processes: who is in one', () => {
  test('a hundred functions share a few processes, and each gives its own answers', async () => {
    start();
    for (const key of keys(100)) register(key);
    const cold = await Promise.all(keys(100).map((key, i) => call(key, i)));
    const warm = await Promise.all(keys(100).map((key, i) => call(key, i + 1)));
    expect(cold.map(first)).toEqual(keys(100).map((_, i) => i));
    expect(warm.map(first)).toEqual(keys(100).map((_, i) => i + 1));
    expect(cold.every(({ coldStart }) => coldStart)).toBe(true);
    expect(warm.some(({ coldStart }) => coldStart)).toBe(false);
    // As many processes as cores, and up to twice that if one was delayed.
    expect(new Set([...cold, ...warm].map(({ instancePid }) => instancePid)).size).toBeLessThanOrEqual(4);
    expect(instancesOf('f7')[0]).toMatchObject({ state: 'idle', isShared: true });
  });

  test('two functions with the same handler file have a module each', async () => {
    start({ cores: 1 });
    const handlerPath = await withHandler('a', { module: 'let calls = 0;', pre: 'calls++;', post: 'return calls' });
    register('b', { handlerPath });
    const counts = [];
    for (const key of ['a', 'a', 'b', 'a', 'b']) counts.push(text(await request(key)));
    expect(counts).toEqual(['1', '2', '1', '3', '2']);
    expect(pidOf('a')).toBe(pidOf('b'));
  });

  test('a function has a process of its own if it is set to, or if its model is large', async () => {
    start();
    register('small');
    register('own', { isolation: 'own' });
    register('large', { modelBytes: 100 * mebibyte });
    for (const key of ['small', 'own', 'large']) await call(key, 1);
    expect(new Set(['small', 'own', 'large'].map(pidOf)).size).toBe(3);
    for (const key of ['own', 'large']) expect(instancesOf(key)[0]).not.toHaveProperty('isShared');
  });

  test('a function whose calls take long moves to a process of its own, and no call waits for the move', async () => {
    start({ cores: 1 });
    await withHandler('slow', { pre: 'const untilMs = performance.now() + 40; while (performance.now() < untilMs);' });
    register('quick');
    await call('quick', 1);
    const results = [];
    while (instancesOf('slow').some(({ isShared }) => isShared) || results.length === 0) {
      results.push(await request('slow'));
    }
    expect(results.filter(({ coldStart }) => coldStart)).toHaveLength(1);
    expect(pidOf('slow')).not.toBe(pidOf('quick'));
    expect((await call('quick', 2)).coldStart).toBe(false);
  });

  test.skipIf(process.platform !== 'linux')(
    'a function with large intermediate results has a process of its own, which keeps their memory for later runs',
    async () => {
      start({ cores: 1 });
      const modelPath = join(folder, 'wide.onnx');
      const graph = new GraphBuilder('wide');
      const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
      const wide = graph.node('Expand', [x, graph.constant({ ints: [wideRows, 4] })]);
      graph.output(graph.node('ReduceMax', [wide], { axes: [0], keepdims: 1 }), ElementType.FLOAT, ['batch', 4], 'y');
      const model = graph.build();
      await writeModel(model, modelPath);
      register('quick');
      await call('quick', 1);
      register('wide', { modelPath, runBytes: runBytesOf(model, describeModel(model).inputs) });
      expect(valuesOf(await call('wide', 3))).toEqual([3, -3, 3, -3]);
      expect(instancesOf('wide')[0]).not.toHaveProperty('isShared');
      expect(pidOf('wide')).not.toBe(pidOf('quick'));
      // ONNX Runtime plans its memory by the first run of a shape.
      await call('wide', 4);
      const pages = await pageFaults('wide');
      await call('wide', 5);
      expect((await pageFaults('wide')) - pages).toBeLessThan(wideBytes / 4096 / 10);
      expect(instancesOf('wide')[0]?.bytes).toBeGreaterThan(wideBytes);
      expect((await call('quick', 2)).coldStart).toBe(false);
    },
  );

  test('a function with endless calls does not starve another in its process', async () => {
    start({ cores: 1 });
    register('endless', {}, { instancesMax: 1 });
    register('quiet');
    await Promise.all([call('endless', 1), call('quiet', 1)]);
    let answered = 0;
    const end = new AbortController();
    const flood = async (): Promise<void> => {
      while (!end.signal.aborted) {
        await call('endless', 1);
        answered++;
      }
    };
    const floods = Promise.all(Array.from({ length: 200 }, flood));
    const meanwhile: number[] = [];
    for (let i = 0; i < 20; i++) {
      const before = answered;
      expect(first(await call('quiet', i))).toBe(i);
      meanwhile.push(answered - before);
    }
    end.abort();
    await floods;
    // At most one running and one queued message of up to 32 calls each; the queue of 200 would be many times that.
    expect(meanwhile.sort((a, b) => a - b)[10]).toBeLessThan(130);
  });
});

describe('shared processes: a function that misbehaves', () => {
  const deadly = { pre: `if (request.text() === 'die') process.kill(process.pid, 'SIGKILL');` };

  test('a function that kills its process gets one of its own, and its neighbours are answered', async () => {
    start({ cores: 1 });
    await withHandler('bad', deadly);
    for (const key of keys(10)) register(key);
    await Promise.all([request('bad'), ...keys(10).map((key) => call(key, 1))]);
    expect(pidOf('bad')).toBe(pidOf('f0'));
    const [dead, ...others] = await Promise.allSettled([request('bad', 'die'), ...keys(10).map((key) => call(key, 2))]);
    // Its call was tried again, alone, and ended that process as well.
    expect(dead).toMatchObject({ status: 'rejected', reason: { code: 'instance-died' } });
    expect(others.map((other) => other.status)).toEqual(others.map(() => 'fulfilled'));
    const pids = keys(10).map(pidOf);
    for (let i = 0; i < 2; i++) {
      await expect(request('bad', 'die')).rejects.toMatchObject({ code: 'instance-died' });
      expect(text(await request('bad', 'live'))).toBe('ok');
      expect(instancesOf('bad')[0]).not.toHaveProperty('isShared');
    }
    expect(keys(10).map(pidOf)).toEqual(pids);
  });

  test('a timer that throws while another function runs is blamed on the function whose code set it', async () => {
    start({ cores: 1 });
    await withHandler('stray', { pre: `setTimeout(() => { throw new Error('stray') }, 20);` });
    await withHandler('neighbour', { pre: 'await new Promise((resolve) => setTimeout(resolve, 100));' });
    await Promise.all([request('neighbour'), request('stray')]);
    await Promise.all([request('stray'), request('neighbour')]);
    await expect.poll(() => givenUp.some(({ cause }) => cause === 'died')).toBe(true);
    expect(text(await request('neighbour'))).toBe('ok');
    expect(text(await request('stray'))).toBe('ok');
    expect(instancesOf('stray')[0], JSON.stringify(givenUp)).not.toHaveProperty('isShared');
  });

  test('a function that was wrongly suspected shares a process again once it has answered alone', async () => {
    start({ cores: 1 });
    register('other');
    // Calls that took long would keep it in a process of its own. Only one of them waits, for the kill.
    const waits = join(folder, 'unlucky-waits');
    await withHandler('unlucky', {
      module: "import { existsSync, writeFileSync } from 'node:fs';",
      pre: `if (request.text() === 'wait' && !existsSync(${JSON.stringify(waits)})) {
        writeFileSync(${JSON.stringify(waits)}, '');
        await new Promise(() => undefined);
      }`,
    });
    await Promise.all([request('unlucky'), call('other', 1)]);
    const hit = request('unlucky', 'wait');
    await expect.poll(() => existsSync(waits)).toBe(true);
    process.kill(pidOf('unlucky'), 'SIGKILL');
    expect(text(await hit)).toBe('ok');
    expect(instancesOf('unlucky')[0]).not.toHaveProperty('isShared');
    for (let i = 0; i < 30; i++) await request('unlucky');
    expect(instancesOf('unlucky')[0]?.isShared).toBe(true);
  });

  const endless = [
    ['blocks its thread', 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);'],
    ['awaits what never comes', 'await new Promise(() => undefined);'],
  ] as const;
  test.for(endless)(
    'a function that never answers and %s holds one shared process, whatever waits',
    async ([, pre]) => {
      start();
      await withHandler('stuck', { pre });
      for (const key of keys(4)) register(key);
      await Promise.all(keys(4).map((key) => call(key, 1)));
      const hung = Array.from({ length: 5 }, () => request('stuck'));
      for (const each of hung) each.catch(() => undefined);
      await expect.poll(() => busyOf('stuck').length).toBe(2);
      expect(busyOf('stuck')).toEqual(['shared', 'alone']);
      // The others are in the other shared process by now, or move there.
      for (const key of keys(4)) expect(first(await call(key, 7))).toBe(7);
    },
  );

  test('a call that never returns delays its neighbours only until they have another process', async () => {
    start({ cores: 1 });
    // It blocks without working: seconds of a core would be missing in other tests.
    const hang = "if (request.text() === 'hang') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);";
    register('other');
    const startMs = performance.now();
    await call('other', 1);
    // Several times what a start takes on this machine, so that the neighbour's comes first.
    const handlerTimeoutMs = 1000 + 10 * (performance.now() - startMs);
    await withHandler('stuck', { pre: hang }, { handlerTimeoutMs });
    await request('stuck');
    let isStopped = false;
    const hung = request('stuck', 'hang').catch((error: unknown) => ((isStopped = true), error));
    await expect.poll(() => instancesOf('stuck')[0]?.state).toBe('busy');
    expect(first(await call('other', 7))).toBe(7);
    expect(isStopped).toBe(false);
    expect(await hung).toMatchObject({ code: 'handler-timeout' });
    expect(text(await request('stuck', 'go on'))).toBe('ok');
    expect(instancesOf('stuck')[0]).not.toHaveProperty('isShared');
  });

  test('no call of a hundred functions fails, however often their process is killed', async () => {
    start();
    const names = keys(100);
    for (const key of names) register(key);
    const total = 3000;
    const answers = new Map<number, number>();
    let killed = 0;
    let next = 0;
    const callOnce = async (i: number): Promise<void> => {
      const key = names[(i * 37) % names.length] ?? '';
      const result = await call(key, i);
      expect(first(result)).toBe(i);
      answers.set(i, (answers.get(i) ?? 0) + 1);
      // Kills come by the number of answers, not by time.
      if (i % 500 === 250) {
        const shared = names.flatMap(instancesOf).find(({ isShared }) => isShared === true);
        if (shared !== undefined) {
          process.kill(shared.pid, 'SIGKILL');
          killed++;
        }
      }
    };
    await Promise.all(
      Array.from({ length: 45 }, async () => {
        while (next < total) await callOnce(next++);
      }),
    );
    expect(killed).toBeGreaterThan(4);
    expect(answers.size).toBe(total);
    expect([...answers.values()].every((count) => count === 1)).toBe(true);
  });
});

describe('shared processes: memory', () => {
  /** No process is measured, so only estimates count and the result does not depend on the machine. */
  const unmeasured = { measureProcess: () => Promise.resolve(undefined) };

  test('when memory is full, the session with the lowest expected loss is closed', async () => {
    startScheduled({ cores: 1, memoryBytes: (32 + 130) * mebibyte, ...unmeasured });
    for (const key of ['often', 'seldom', 'new']) register(key, { modelBytes: 40 * mebibyte });
    await call('seldom', 1);
    // Called far more often: that outweighs a slow load of the other on a busy machine.
    for (let i = 0; i < 50; i++) await call('often', i);
    await call('new', 4);
    expect(givenUp).toMatchObject([{ key: 'seldom', cause: 'room' }]);
    expect(pools.resources().memoryUsedBytes).toBeLessThanOrEqual(pools.resources().memoryBytes);
  });

  test('no session is closed before it has answered a call that it was loaded for', async () => {
    /** Answers since the latest load. */
    const answers = new Map<string, number>();
    const inVain: string[] = [];
    let loads = 0;
    startScheduled({
      cores: 1,
      memoryBytes: (32 + 130) * mebibyte,
      ...unmeasured,
      onLoaded: ({ key }) => {
        loads++;
        if (answers.get(key) === 0) inVain.push(key);
        answers.set(key, 0);
      },
    });
    const names = keys(6);
    // Runs take 20 ms, so a session that is loaded beside them waits for its turn.
    const pre = 'for (const endMs = performance.now() + 20; performance.now() < endMs; );';
    for (const key of names) {
      const handlerPath = await withHandler(key, { pre });
      register(key, { handlerPath, modelBytes: 40 * mebibyte });
    }
    const answerOnce = async (key: string): Promise<void> => {
      await request(key);
      answers.set(key, (answers.get(key) ?? 0) + 1);
    };
    await Promise.all(Array.from({ length: 5 }, () => names.map(answerOnce)).flat());
    expect(loads).toBeGreaterThan(names.length);
    expect(inVain).toEqual([]);
  });

  test('a model that is larger than all memory is refused in a sentence that names both sizes', async () => {
    start({ memoryBytes: 100 * mebibyte });
    register('huge', { modelBytes: 300 * mebibyte });
    register('small');
    await expect(call('huge', 1)).rejects.toMatchObject({
      code: 'model-load-failed',
      message:
        'the model of huge could not be loaded: a session of huge takes about 409 MB, more than the 105 MB that all functions share (cpu.memory)',
    });
    expect(first(await call('small', 3))).toBe(3);
  });

  test('functions are served one after the other if memory is too small for two of them', async () => {
    // A session alone is measured as up to 2.1 MB: two do not fit.
    startScheduled({ memoryBytes: 3 * mebibyte });
    for (const key of keys(3)) register(key);
    const results = await Promise.all([...keys(3), ...keys(3)].map((key, i) => call(key, i)));
    expect(results.map(first)).toEqual(Array.from({ length: 6 }, (_, i) => i));
  });

  test('memory of a closed session counts as taken while another function holds up its process', async () => {
    start({ cores: 1, measureProcess: () => Promise.resolve(undefined) });
    await withHandler('endless', { post: 'await new Promise(() => undefined);' });
    register('f');
    for (const key of ['endless', 'f']) await pools.load(key);
    expect(pidOf('f')).toBe(pidOf('endless'));
    const bytes = instancesOf('f')[0]?.bytes ?? 0;
    const takenBytes = pools.memoryTakenBytes();
    request('endless').catch(() => undefined);
    void pools.evict('f');
    expect(instancesOf('f')).toEqual([]);
    await expect.poll(() => pools.memoryTakenBytes()).toBe(takenBytes + bytes);
  });

  test.skipIf(process.platform !== 'linux')('memory of evicted sessions goes back to the system', async () => {
    const facts = new Map<string, PoolFacts>();
    start({ cores: 1, onFacts: (fact) => void facts.set(fact.key, fact) });
    const modelPath = join(folder, 'many-small.onnx');
    const graph = new GraphBuilder('many-small');
    let x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    // Weights below the size from which the C library returns memory by itself.
    for (let layer = 0; layer < 20; layer++) {
      const wide = graph.node('MatMul', [
        x,
        graph.weight(`a${layer}`, [4, 30_000], new Float32Array(120_000).fill(layer + 1)),
      ]);
      x = graph.node('MatMul', [wide, graph.weight(`b${layer}`, [30_000, 4], new Float32Array(120_000).fill(1e-6))]);
    }
    graph.output(x, ElementType.FLOAT, ['batch', 4], 'y');
    await writeModel(graph.build(), modelPath);
    register('keeps');
    await call('keeps', 1);
    const before = await residentMiB('keeps');
    for (const key of keys(3)) {
      register(key, { modelPath, modelBytes: 19 * mebibyte });
      await pools.load(key);
    }
    const loaded = await residentMiB('keeps');
    // ONNX Runtime keeps 11 MiB for each; the copies of a load go back at once.
    expect(loaded - before).toBeGreaterThan(25);
    expect(loaded - before).toBeLessThan(45);
    expect(facts.get('f1')?.bytes).toBeGreaterThan(8 * mebibyte);
    await Promise.all(keys(3).map((key) => pools.evict(key)));
    expect(facts.get('f1')?.bytes).toBe(0);
    expect((await residentMiB('keeps')) - before).toBeLessThan(0.3 * (loaded - before));
    expect((await call('keeps', 2)).coldStart).toBe(false);
  });
});
