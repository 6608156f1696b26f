/** Instances of CPU pools: which ones there are at a time, and what replaces those that die or hang. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import {
  bodyOf as body,
  largeBytes,
  poolLimits as limits,
  requestOf as request,
  roomFor,
  rowsOfFour as input,
  TestPools,
  textHandler,
  valuesOf as values,
} from '../../test/support/cpu-pools.ts';
import { buildArchitecture, writeModel } from '../onnx/index.ts';
import { tensorOf } from '../tensor/index.ts';
import type { CpuPools, CpuPoolsOptions, GivenUp } from './index.ts';

const on = new TestPools();
let pools: CpuPools;

/** Empty once the process is gone. */
const readProc = (path: string): Promise<string> => readFile(`/proc/${path}`, 'utf8').catch(() => '');

/** The processes that have loaded ONNX Runtime and wait for a function. */
async function waitingPids(): Promise<number[]> {
  const tasks = await readdir('/proc/self/task');
  const lists = await Promise.all(tasks.map((task) => readProc(`self/task/${task}/children`)));
  const children = lists.join(' ').split(' ').filter(Boolean).map(Number);
  const maps = await Promise.all(children.map((pid) => readProc(`${pid}/maps`)));
  const states = await Promise.all(children.map((pid) => readProc(`${pid}/stat`)));
  return children.filter((_, at) => maps[at]?.includes('libonnxruntime') && states[at]?.includes(') S '));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

describe('an instance that dies', () => {
  it('is replaced, and its invocation is answered by another', async () => {
    pools = on.start({ blankInstances: 1 });
    const marker = join(on.folder, 'died-once');
    const handlerPath = await on.handler(
      'dies-once',
      `import { existsSync, writeFileSync } from 'node:fs';
       export function preprocess() {
         if (!existsSync(${JSON.stringify(marker)})) {
           writeFileSync(${JSON.stringify(marker)}, '');
           process.kill(process.pid, 'SIGKILL');
         }
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, -1, 1, -1] }];
       }
       export function postprocess(tensors) { return Array.from(tensors[0].data); }`,
    );
    pools.register(on.spec('dies', { handlerPath }), limits);

    const result = await pools.invoke('dies', request(''));

    expect(body(result)).toBe('[1,0,1,0]');
  });

  it('a second time fails the invocation with a clear error, while others are served', async () => {
    pools = on.start({ blankInstances: 1 });
    const handlerPath = await on.handler(
      'dies-on-demand',
      `export function preprocess(request) {
         if (request.text() === 'die') process.kill(process.pid, 'SIGKILL');
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess(tensors) { return Array.from(tensors[0].data); }`,
    );
    pools.register(on.spec('dies', { handlerPath }), limits);

    const [dead, alive] = await Promise.allSettled([
      pools.invoke('dies', request('die')),
      pools.invoke('dies', request('live')),
    ]);

    expect(dead).toMatchObject({
      reason: { code: 'instance-died', message: expect.stringContaining('SIGKILL') as string },
    });
    expect(alive).toMatchObject({ status: 'fulfilled' });
  });

  it('twice of an input without elements is spared the next of that kind, and runs others', async () => {
    const settings = { layers: 1, input: 2, hidden: 2, sequence: 3 };
    const modelPath = join(on.folder, 'lstm.onnx');
    await writeModel(buildArchitecture('lstm', settings, 1).model, modelPath);
    pools = on.start();
    pools.register(on.spec('lstm', { modelPath }), limits);
    const run = async (rows: number): Promise<unknown> => {
      const tensors = [tensorOf('input', 'FP32', [rows, 3, 2], new Float32Array(rows * 6))];
      return pools.invoke('lstm', { kind: 'tensors', tensors });
    };
    await expect(run(0)).rejects.toMatchObject({ code: 'instance-died' });
    await expect(run(0)).rejects.toMatchObject({
      code: 'inference-input',
      message: expect.stringContaining("'input' of shape [0, 3, 2]") as string,
    });
    await expect(run(1)).resolves.toMatchObject({ coldStart: true });
  });

  it('in the middle of a load fails no waiting invocation', async () => {
    pools = on.start({ blankInstances: 1 });
    pools.register(on.spec('relu'), { ...limits, instancesMax: 1 });
    const waiting = Array.from({ length: 5 }, (_, i) => pools.invoke('relu', input(i, 0, 0, 0)));
    const [loading] = on.pidsOf('relu');
    expect(pools.states()[0]?.instances).toMatchObject([{ state: 'loading' }]);
    process.kill(loading ?? 0, 'SIGKILL');
    expect((await Promise.all(waiting)).map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4]);
  });

  it('in five loads in a row of a model that has been loaded before fails no waiting invocation', async () => {
    pools = on.start({ blankInstances: 1 });
    const marker = join(on.folder, 'dies-in-later-loads');
    const handlerPath = await on.handler(
      'dies-in-loads',
      `import { appendFileSync, readFileSync } from 'node:fs';
       appendFileSync(${JSON.stringify(marker)}, '.');
       const loads = readFileSync(${JSON.stringify(marker)}, 'utf8').length;
       if (loads > 1 && loads < 7) process.kill(process.pid, 'SIGKILL');
       ${textHandler}`,
    );
    pools.register(on.spec('dies', { handlerPath }), { ...limits, instancesMax: 1 });
    await pools.invoke('dies', request('1,2,3,4'));
    await pools.unload('dies');
    const waiting = Array.from({ length: 5 }, (_, i) => pools.invoke('dies', request(`${i},0,0,0`)));
    expect((await Promise.all(waiting)).map(body)).toEqual(Array.from({ length: 5 }, (_, i) => `${i},0,0,0`));
    // One load succeeded, five died, and at least one more succeeded.
    expect((await readFile(marker, 'utf8')).length).toBeGreaterThanOrEqual(7);
  });

  it('in every load fails the waiting invocations after a bounded number of tries', async () => {
    pools = on.start({ blankInstances: 1 });
    const handlerPath = await on.handler('dies-at-once', `process.kill(process.pid, 'SIGKILL');\n${textHandler}`);
    pools.register(on.spec('dies', { handlerPath }), limits);
    await expect(pools.invoke('dies', request('1,2,3,4'))).rejects.toMatchObject({
      code: 'model-load-failed',
      message: expect.stringContaining('SIGKILL') as string,
    });
  });

  it.skipIf(process.platform !== 'linux')('or hangs before it holds a model is replaced', async () => {
    await expect.poll(waitingPids).toEqual([]);
    pools = on.start({ blankInstances: 2 });
    pools.register(on.spec('relu'), limits);
    await expect.poll(waitingPids).toHaveLength(2);
    const blanks = await waitingPids();
    for (const pid of blanks) process.kill(pid, 'SIGSTOP');
    const result = await pools.invoke('relu', input(1, 2, 3, 4));
    expect(values(result)).toEqual([1, 2, 3, 4]);
    expect(blanks).not.toContain(result.instancePid);
  });

  it('or hangs in a load that succeeded before is replaced', async () => {
    pools = on.start({ blankInstances: 1 });
    const marker = join(on.folder, 'hangs-the-second-time');
    const handlerPath = await on.handler(
      'hangs-in-a-load',
      `import { appendFileSync, readFileSync } from 'node:fs';
       appendFileSync(${JSON.stringify(marker)}, 'load ');
       if (readFileSync(${JSON.stringify(marker)}, 'utf8') === 'load load ') {
         setInterval(() => undefined, 1000);
         await new Promise(() => undefined);
       }
       ${textHandler}`,
    );
    pools.register(on.spec('hangs', { handlerPath }), { ...limits, loadTimeoutMs: 3000 });
    expect(body(await pools.invoke('hangs', request('1,2,3,4')))).toBe('1,2,3,4');
    await pools.unload('hangs');
    expect(body(await pools.invoke('hangs', request('5,6,7,8')))).toBe('5,6,7,8');
    expect(await readFile(marker, 'utf8')).toBe('load load load ');
  });

  it('fails no invocation, however often it is killed', async () => {
    pools = on.start({ blankInstances: 1 });
    pools.register(on.spec('relu'), limits);
    const total = 600;
    let killed = 0;
    const results = await Promise.all(
      Array.from({ length: total }, async (_, i) => {
        const result = await pools.invoke('relu', input(i, -i, i, -i));
        // A kill is tied to progress rather than to time: every hundredth answer kills an instance.
        if (i % 100 === 50) {
          const victim = on.busyPid('relu') ?? on.pidsOf('relu')[0];
          if (victim !== undefined && endIfThere(victim)) killed++;
        }
        return result;
      }),
    );
    expect(killed).toBeGreaterThan(3);
    expect(results.map((result) => values(result)[0])).toEqual(Array.from({ length: total }, (_, i) => i));
  });
});

/** False: it has ended by an earlier kill, of which the pool has not heard yet. */
function endIfThere(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL');
  } catch {
    return false;
  }
}

describe('instances', () => {
  it('of an idle function are released', async () => {
    const given: GivenUp[] = [];
    const scheduled = on.startScheduled({ onGivenUp: (each) => given.push(each) });
    scheduled.register(on.spec('relu', { isolation: 'own' }), { ...limits, idleMs: 0 });
    const first = await scheduled.invoke('relu', input(1, 2, 3, 4));
    await expect.poll(() => on.pidsOf('relu')).toEqual([]);
    await expect.poll(() => isAlive(first.instancePid)).toBe(false);
    expect(given).toMatchObject([{ key: 'relu', cause: 'idle' }]);
    // The scheduler has closed it, so it expects the next call to be a cold start.
    expect(await scheduled.invoke('relu', input(1, 2, 3, 4))).toMatchObject({ coldStart: true });
  });

  it('that nothing has used for long are told of, once each time, and stay until they are evicted', async () => {
    const told = vi.fn<NonNullable<CpuPoolsOptions['onIdle']>>();
    pools = on.start({ onIdle: told });
    pools.register(on.spec('relu'), { ...limits, idleMs: 0 });
    await pools.invoke('relu', input(1, 2, 3, 4));
    await expect.poll(() => told.mock.calls.length).toBeGreaterThan(1);
    expect(told.mock.calls[0]).toEqual([{ key: 'relu', isSpare: false }]);
    expect(on.pidsOf('relu')).toHaveLength(1);
  });

  it('of a pinned function are loaded ahead and stay', async () => {
    const told = vi.fn<NonNullable<CpuPoolsOptions['onIdle']>>();
    pools = on.start({ onIdle: told });
    pools.register(on.spec('relu'), { ...limits, idleMs: 0, instancesMin: 1 });
    pools.register(on.spec('other'), { ...limits, idleMs: 0 });
    await pools.load('relu');
    await pools.load('other');
    await expect.poll(() => told.mock.calls.length).toBeGreaterThan(1);
    expect(told).not.toHaveBeenCalledWith(expect.objectContaining({ key: 'relu' }));
    const result = await pools.invoke('relu', input(1, 2, 3, 4));
    expect(result.coldStart).toBe(false);
    expect(on.pidsOf('relu')).toEqual([result.instancePid]);
  });

  it('made ahead of a call serve it warm; of a model that does not load there is nothing', async () => {
    const scheduled = on.startScheduled({});
    scheduled.register(on.spec('relu'), limits);
    expect((await scheduled.makeSession('relu')).bytes).toBeGreaterThan(0);
    expect((await scheduled.invoke('relu', input(1, 2, 3, 4))).coldStart).toBe(false);
    scheduled.register(on.spec('gone', { modelPath: `${on.reluPath}.none` }), limits);
    expect(await scheduled.makeSession('gone')).toMatchObject({ bytes: 0 });
    expect((await scheduled.makeSession('unknown')).bytes).toBe(0);
  });

  it('of pinned functions are evicted at the limit when nothing else can be', async () => {
    const scheduled = on.startScheduled(roomFor(2));
    for (const key of ['a', 'b']) {
      scheduled.register(on.spec(key, { modelBytes: largeBytes }), { ...limits, instancesMin: 1 });
      await scheduled.pools.load(key);
    }
    scheduled.register(on.spec('c', { modelBytes: largeBytes }), { ...limits, instancesMin: 1 });
    scheduled.register(on.spec('d', { modelBytes: largeBytes }), limits);
    // An instance that keeps its place is not asked to leave, and does not leave by itself.
    const results = await Promise.all(['c', 'd'].map((key) => scheduled.invoke(key, input(1, 2, 3, 4))));
    expect(results).toHaveLength(2);
  });

  it('are made again within the limit where their processes die beside loads that want their room', async () => {
    const scheduled = on.startScheduled(roomFor(2));
    const keys = ['a', 'b', 'c'];
    for (const key of keys) scheduled.register(on.spec(key, { modelBytes: largeBytes }), limits);
    const sample = (): void => {
      const { memoryUsedBytes, memoryBytes } = scheduled.pools.resources();
      expect(memoryUsedBytes).toBeLessThanOrEqual(memoryBytes);
      expect(keys.flatMap((key) => on.pidsOf(key)).length).toBeLessThanOrEqual(2);
    };
    for (let round = 0; round < 6; round++) {
      const [dies, stays, comes] = [0, 1, 2].map((at) => keys[(round + at) % 3]!) as [string, string, string];
      await scheduled.invoke(dies, input(1, 2, 3, 4));
      await scheduled.invoke(stays, input(1, 2, 3, 4));
      for (const pid of on.pidsOf(dies)) endIfThere(pid);
      // Whether the load or the replacement is first is as it comes.
      const results = await Promise.all([comes, stays, comes].map((key) => scheduled.invoke(key, input(1, 2, 3, 4)).finally(sample))); // prettier-ignore
      expect(results).toHaveLength(3);
    }
  });

  it('of the function with the lowest expected loss are evicted at the limit', async () => {
    const scheduled = on.startScheduled(roomFor(2));
    for (const key of ['a', 'b', 'c']) scheduled.register(on.spec(key, { modelBytes: largeBytes }), limits);
    await scheduled.invoke('a', input(1, 2, 3, 4));
    // It is called far more often, and last: that outweighs a slow load of 'a' on a busy machine.
    for (let calls = 0; calls < 50; calls++) await scheduled.invoke('b', input(1, 2, 3, 4));
    await scheduled.invoke('c', input(1, 2, 3, 4));
    expect(on.pidsOf('a')).toEqual([]);
    expect(on.pidsOf('b')).toHaveLength(1);
    expect(on.pidsOf('c')).toHaveLength(1);
  });

  it('are fewer than the functions, yet every function is served', async () => {
    const scheduled = on.startScheduled(roomFor(1));
    const keys = ['a', 'b', 'c'];
    for (const key of keys) scheduled.register(on.spec(key, { modelBytes: largeBytes }), limits);
    const results = await Promise.all(
      [...keys, ...keys, ...keys].map((key, i) => scheduled.invoke(key, input(i, 0, 0, 0))),
    );
    expect(results.map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('are taken from functions under load for a function that has none', async () => {
    const scheduled = on.startScheduled(roomFor(1));
    // Calls of some milliseconds, so that others wait whenever one has been answered.
    const handlerPath = await on.handler(
      'takes-milliseconds',
      `export async function preprocess() {
         await new Promise((resolve) => setTimeout(resolve, 5));
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess() { return 'ok'; }`,
    );
    scheduled.register(on.spec('a', { handlerPath, modelBytes: largeBytes }), { ...limits, instancesMax: 1 });
    scheduled.register(on.spec('b', { modelBytes: largeBytes }), limits);
    const end = new AbortController();
    const endless = async (): Promise<void> => {
      while (!end.signal.aborted) await scheduled.invoke('a', request(''));
    };
    const load = Promise.all(Array.from({ length: 8 }, endless));
    await scheduled.invoke('a', request(''));
    const results = [await scheduled.invoke('b', input(5, 6, 7, 8)), await scheduled.invoke('b', input(6, 7, 8, 9))];
    end.abort();
    await load;
    expect(results.map((result) => values(result)[0])).toEqual([5, 6]);
  });

  it('stay in place once no call waits for them any more', async () => {
    const scheduled = on.startScheduled(roomFor(1));
    scheduled.register(on.spec('gone', { modelBytes: largeBytes }), limits);
    const handlerPath = await on.handler(
      'waits-a-while',
      `export async function preprocess(request) {
         if (request.text() === 'wait') await new Promise((resolve) => setTimeout(resolve, 300));
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess(tensors) { return 'ok'; }`,
    );
    scheduled.register(on.spec('slow', { handlerPath, modelBytes: largeBytes }), limits);
    const first = await scheduled.invoke('slow', request(''));
    const busy = scheduled.invoke('slow', request('wait'));
    const client = new AbortController();
    const gone = scheduled.invoke('gone', input(1, 2, 3, 4), { signal: client.signal });
    client.abort();
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
    await busy;
    expect(await scheduled.invoke('slow', request(''))).toMatchObject({
      coldStart: false,
      instancePid: first.instancePid,
    });
  });

  it('are released by an unload and start again with the next invocation', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), limits);
    await pools.invoke('relu', input(1, 2, 3, 4));
    await pools.unload('relu');
    expect(on.pidsOf('relu')).toEqual([]);
    expect((await pools.invoke('relu', input(1, 2, 3, 4))).coldStart).toBe(true);
  });

  it('cannot start from a file that is no model, and the error says so', async () => {
    pools = on.start();
    const modelPath = join(on.folder, 'garbage.onnx');
    await writeFile(modelPath, 'this is no model');
    pools.register(on.spec('garbage', { modelPath }), limits);
    await expect(pools.invoke('garbage', input(1, 2, 3, 4))).rejects.toMatchObject({
      code: 'model-load-failed',
      message: expect.stringMatching(/protobuf parsing failed/i) as string,
    });
  });

  it('finish what was accepted before the pools stop, and take nothing more', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), limits);
    const accepted = Array.from({ length: 5 }, (_, i) => pools.invoke('relu', input(i, 0, 0, 0)));
    const stopped = pools.stop(10_000);
    await expect(pools.invoke('relu', input(1, 2, 3, 4))).rejects.toMatchObject({ code: 'stopping' });
    expect((await Promise.all(accepted)).map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4]);
    await stopped;
    expect(on.pidsOf('relu')).toEqual([]);
  });
});
