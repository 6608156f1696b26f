import { getEventListeners } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  bodyOf as body,
  largeBytes,
  poolLimits as limits,
  requestOf as request,
  roomFor,
  rowsOfFour as input,
  valuesOf as values,
} from '../../test/support/cpu-pools.ts';
import { writeMeanModel, writeReluModel, writeTableModel } from '../../test/support/models.ts';
import { tensorOf } from '../tensor/index.ts';
import {
  createCpuPools,
  type CpuPools,
  type CpuPoolsOptions,
  type InstanceSpec,
  type PoolInput,
  type PoolResult,
} from './index.ts';

let folder: string;
let reluPath: string;
let meanPath: string;
let tablePath: string;
let pools: CpuPools;
const logged: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-pools-'));
  [reluPath, meanPath, tablePath] = await Promise.all([
    writeReluModel(folder),
    writeMeanModel(folder),
    writeTableModel(folder),
  ]);
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => pools?.stop(0));

function start(options: Partial<CpuPoolsOptions> = {}): void {
  pools = createCpuPools({
    cores: 2,
    blankInstances: 1,
    memoryBytes: 4e9,
    log: (_pid, _key, line) => logged.push(line),
    ...options,
  });
}

function spec(key: string, overrides: Partial<InstanceSpec> = {}): InstanceSpec {
  return { key, modelPath: reluPath, threads: 1, ...overrides };
}

function tableRow(index: bigint): PoolInput {
  return { kind: 'tensors', tensors: [tensorOf('x', 'INT64', [1], BigInt64Array.of(index))] };
}

async function handler(name: string, source: string): Promise<string> {
  const path = join(folder, `${name}.mjs`);
  await writeFile(path, source);
  return path;
}

const busyPid = (key: string): number | undefined =>
  pools
    .states()
    .find((state) => state.key === key)
    ?.instances.find((instance) => instance.state === 'busy')?.pid;
const pidsOf = (key: string): number[] =>
  pools
    .states()
    .filter((state) => state.key === key)
    .flatMap((state) => state.instances.map((instance) => instance.pid));

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

/** Takes text such as `1,2,3,4` to the model and answers with the outputs joined the same way. */
const textHandler = `
export function preprocess(request) {
  const data = request.text().split(',').map(Number);
  if (data.some(Number.isNaN)) throw Object.assign(new Error('that is not a list of numbers'), { status: 400 });
  return [{ name: 'x', datatype: 'FP32', shape: [1, data.length], data }];
}
export function postprocess(tensors) { return Array.from(tensors[0].data).join(','); }`;

describe('an invocation', () => {
  it('is answered by a cold instance, then by the same one warm', async () => {
    start();
    pools.register(spec('relu'), limits);

    const cold = await pools.invoke('relu', input(-1, 2, -3, 4));
    const warm = await pools.invoke('relu', input(5, -6, 7, -8));

    expect(values(cold)).toEqual([0, 2, 0, 4]);
    expect(values(warm)).toEqual([5, 0, 7, 0]);
    expect([cold.coldStart, warm.coldStart]).toEqual([true, false]);
    expect(cold.timings.loadMs).toBeGreaterThan(0);
    expect(warm.timings.loadMs).toBe(0);
    expect(warm.instancePid).toBe(cold.instancePid);
  });

  it('shares one load with all invocations that come while the function is cold', async () => {
    start();
    pools.register(spec('relu'), { ...limits, instancesMax: 1 });

    const results = await Promise.all(Array.from({ length: 20 }, (_, i) => pools.invoke('relu', input(i, -i, i, -i))));

    expect(results.map((result) => values(result)[0])).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(new Set(results.map((result) => result.instancePid)).size).toBe(1);
    expect(results.every((result) => result.coldStart)).toBe(true);
  });

  it('of a function that is not registered is refused by name', async () => {
    start();
    await expect(pools.invoke('nobody', input(1, 2, 3, 4))).rejects.toMatchObject({
      code: 'unknown-function',
      message: expect.stringContaining('nobody') as string,
    });
  });

  it('that waits for an instance while its function is removed with its model file is told so', async () => {
    start();
    pools.register(spec('gone', { modelPath: join(folder, 'gone.onnx') }), limits);
    const call = pools.invoke('gone', input(1, 2, 3, 4)).catch((error: unknown) => error);
    await pools.unregister('gone');
    expect(await call).toMatchObject({ code: 'unknown-function', message: "function 'gone' was removed" });
  });

  it('that the model itself cannot take is an input error, and the instance goes on', async () => {
    start();
    pools.register(spec('table', { modelPath: tablePath }), limits);

    await expect(pools.invoke('table', tableRow(99n))).rejects.toMatchObject({ code: 'inference-input' });
    const after = await pools.invoke('table', tableRow(2n));

    expect(values(after)).toEqual([20, 21]);
    expect(after.coldStart).toBe(false);
  });

  it('whose deadline passes in the queue is refused and never started', async () => {
    start();
    pools.register(spec('relu'), limits);
    const late = pools.invoke('relu', input(1, 2, 3, 4), { deadlineMs: performance.now() + 1 });
    await expect(late).rejects.toMatchObject({ code: 'deadline-passed' });
  });

  it('is dropped from the queue when its client goes', async () => {
    start();
    pools.register(spec('relu'), limits);
    const client = new AbortController();
    const gone = pools.invoke('relu', input(1, 2, 3, 4), { signal: client.signal });
    client.abort();
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
    expect(pools.states()[0]?.queueLength).toBe(0);
  });

  it('leaves no reference to a removed function on a connection that stays open', async () => {
    start();
    const client = new AbortController();
    for (const key of ['first', 'second', 'third']) {
      pools.register(spec(key), limits);
      await pools.invoke(key, input(1, 2, 3, 4), { signal: client.signal });
      await pools.unregister(key);
    }
    expect(getEventListeners(client.signal, 'abort')).toHaveLength(1);
  });

  it('beyond the limit of the queue is refused at once', async () => {
    start();
    pools.register(spec('relu'), { ...limits, queueMax: 3, instancesMax: 1 });
    const attempts = await Promise.allSettled(Array.from({ length: 5 }, () => pools.invoke('relu', input(1, 2, 3, 4))));
    expect(attempts.map((attempt) => attempt.status)).toEqual([
      'fulfilled',
      'fulfilled',
      'fulfilled',
      'rejected',
      'rejected',
    ]);
    expect(attempts[4]).toMatchObject({ reason: { code: 'queue-full' } });
  });

  it('of a higher priority is served before those that came earlier', async () => {
    start();
    pools.register(spec('relu'), { ...limits, instancesMax: 1 });
    const order: string[] = [];
    const invoke = async (name: string, priority: number): Promise<void> => {
      await pools.invoke('relu', input(1, 2, 3, 4), { priority });
      order.push(name);
    };
    await Promise.all([invoke('low 1', 9), invoke('low 2', 9), invoke('high', 1)]);
    expect(order).toEqual(['high', 'low 1', 'low 2']);
  });
});

describe('an instance that dies', () => {
  it('is replaced, and its invocation is answered by another', async () => {
    start();
    const marker = join(folder, 'died-once');
    const handlerPath = await handler(
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
    pools.register(spec('dies', { handlerPath }), limits);

    const result = await pools.invoke('dies', request(''));

    expect(body(result)).toBe('[1,0,1,0]');
  });

  it('a second time fails the invocation with a clear error, while others are served', async () => {
    start();
    const handlerPath = await handler(
      'dies-on-demand',
      `export function preprocess(request) {
         if (request.text() === 'die') process.kill(process.pid, 'SIGKILL');
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess(tensors) { return Array.from(tensors[0].data); }`,
    );
    pools.register(spec('dies', { handlerPath }), limits);

    const [dead, alive] = await Promise.allSettled([
      pools.invoke('dies', request('die')),
      pools.invoke('dies', request('live')),
    ]);

    expect(dead).toMatchObject({
      reason: { code: 'instance-died', message: expect.stringContaining('SIGKILL') as string },
    });
    expect(alive).toMatchObject({ status: 'fulfilled' });
  });

  it('in the middle of a load fails no waiting invocation', async () => {
    start();
    pools.register(spec('relu'), { ...limits, instancesMax: 1 });
    const waiting = Array.from({ length: 5 }, (_, i) => pools.invoke('relu', input(i, 0, 0, 0)));
    const [loading] = pidsOf('relu');
    expect(pools.states()[0]?.instances).toMatchObject([{ state: 'loading' }]);
    process.kill(loading ?? 0, 'SIGKILL');
    expect((await Promise.all(waiting)).map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4]);
  });

  it('in five loads in a row of a model that has been loaded before fails no waiting invocation', async () => {
    start();
    const marker = join(folder, 'dies-in-later-loads');
    const handlerPath = await handler(
      'dies-in-loads',
      `import { appendFileSync, readFileSync } from 'node:fs';
       appendFileSync(${JSON.stringify(marker)}, '.');
       const loads = readFileSync(${JSON.stringify(marker)}, 'utf8').length;
       if (loads > 1 && loads < 7) process.kill(process.pid, 'SIGKILL');
       ${textHandler}`,
    );
    pools.register(spec('dies', { handlerPath }), { ...limits, instancesMax: 1 });
    await pools.invoke('dies', request('1,2,3,4'));
    await pools.unload('dies');
    const waiting = Array.from({ length: 5 }, (_, i) => pools.invoke('dies', request(`${i},0,0,0`)));
    expect((await Promise.all(waiting)).map(body)).toEqual(Array.from({ length: 5 }, (_, i) => `${i},0,0,0`));
    // One load succeeded, five died, and at least one more succeeded.
    expect((await readFile(marker, 'utf8')).length).toBeGreaterThanOrEqual(7);
  });

  it('in every load fails the waiting invocations after a bounded number of tries', async () => {
    start();
    const handlerPath = await handler('dies-at-once', `process.kill(process.pid, 'SIGKILL');\n${textHandler}`);
    pools.register(spec('dies', { handlerPath }), limits);
    await expect(pools.invoke('dies', request('1,2,3,4'))).rejects.toMatchObject({
      code: 'model-load-failed',
      message: expect.stringContaining('SIGKILL') as string,
    });
  });

  it.skipIf(process.platform !== 'linux')(
    'or hangs before it holds a model is replaced',
    async () => {
      await expect.poll(waitingPids, { timeout: 30_000 }).toEqual([]);
      start({ blankInstances: 2 });
      pools.register(spec('relu'), limits);
      await expect.poll(waitingPids, { timeout: 30_000 }).toHaveLength(2);
      const blanks = await waitingPids();
      for (const pid of blanks) process.kill(pid, 'SIGSTOP');
      const result = await pools.invoke('relu', input(1, 2, 3, 4));
      expect(values(result)).toEqual([1, 2, 3, 4]);
      expect(blanks).not.toContain(result.instancePid);
    },
    90_000,
  );

  it('or hangs in a load that succeeded before is replaced', async () => {
    start();
    const marker = join(folder, 'hangs-the-second-time');
    const handlerPath = await handler(
      'hangs-in-a-load',
      `import { appendFileSync, readFileSync } from 'node:fs';
       appendFileSync(${JSON.stringify(marker)}, 'load ');
       if (readFileSync(${JSON.stringify(marker)}, 'utf8') === 'load load ') {
         setInterval(() => undefined, 1000);
         await new Promise(() => undefined);
       }
       ${textHandler}`,
    );
    pools.register(spec('hangs', { handlerPath }), { ...limits, loadTimeoutMs: 3000 });
    expect(body(await pools.invoke('hangs', request('1,2,3,4')))).toBe('1,2,3,4');
    await pools.unload('hangs');
    expect(body(await pools.invoke('hangs', request('5,6,7,8')))).toBe('5,6,7,8');
    expect(await readFile(marker, 'utf8')).toBe('load load load ');
  });

  it('fails no invocation, however often it is killed', async () => {
    start();
    pools.register(spec('relu'), limits);
    const total = 600;
    let killed = 0;
    const results = await Promise.all(
      Array.from({ length: total }, async (_, i) => {
        const result = await pools.invoke('relu', input(i, -i, i, -i));
        // A kill is tied to progress rather than to time: every hundredth answer kills an instance.
        if (i % 100 === 50) {
          const victim = busyPid('relu') ?? pidsOf('relu')[0];
          if (victim !== undefined) {
            process.kill(victim, 'SIGKILL');
            killed++;
          }
        }
        return result;
      }),
    );
    expect(killed).toBeGreaterThan(3);
    expect(results.map((result) => values(result)[0])).toEqual(Array.from({ length: total }, (_, i) => i));
  });
});

describe('a handler', () => {
  it('turns a request into tensors and tensors into a reply', async () => {
    start();
    pools.register(spec('text', { handlerPath: await handler('text', textHandler) }), limits);
    const result = await pools.invoke('text', request('1,-2,3,-4'));
    expect(body(result)).toBe('1,0,3,0');
    expect(result.output).toMatchObject({ response: { status: 200 } });
  });

  it('may reply with a web Response, bytes, text or anything that is JSON', async () => {
    start();
    const handlerPath = await handler(
      'replies',
      textHandler.replace(
        "return Array.from(tensors[0].data).join(',');",
        `const [kind] = Array.from(tensors[0].data);
         if (kind === 1) return new Response('made', { status: 201, headers: { 'x-made': 'yes' } });
         if (kind === 2) return Uint8Array.of(104, 105);
         if (kind === 3) return 'text';
         return { kind };`,
      ),
    );
    pools.register(spec('replies', { handlerPath }), limits);
    const replies = [];
    for (const kind of [1, 2, 3, 4]) replies.push((await pools.invoke('replies', request(`${kind},0,0,0`))).output);
    expect(
      replies.map((output) =>
        output.kind === 'response'
          ? [
              output.response.status,
              output.response.headers['content-type'],
              Buffer.from(output.response.body).toString(),
            ]
          : output,
      ),
    ).toEqual([
      [201, 'text/plain;charset=UTF-8', 'made'],
      [200, 'application/octet-stream', 'hi'],
      [200, 'text/plain; charset=utf-8', 'text'],
      [200, 'application/json', '{"kind":4}'],
    ]);
    expect(replies[0]).toMatchObject({ response: { headers: { 'x-made': 'yes' } } });
  });

  it('rejects its input with a status of its own', async () => {
    start();
    pools.register(spec('text', { handlerPath: await handler('text', textHandler) }), limits);
    await expect(pools.invoke('text', request('one,two'))).rejects.toMatchObject({
      code: 'handler-input',
      status: 400,
      message: 'that is not a list of numbers',
    });
  });

  it('that never returns is stopped at its time limit, and the function goes on', async () => {
    start();
    const handlerPath = await handler(
      'hangs',
      textHandler.replace('const data', `while (request.text() === 'hang');\n  const data`),
    );
    pools.register(spec('hangs', { handlerPath }), { ...limits, handlerTimeoutMs: 1000 });
    const [hung, fine] = await Promise.allSettled([
      pools.invoke('hangs', request('hang')),
      pools.invoke('hangs', request('1,2,3,4')),
    ]);
    expect(hung).toMatchObject({
      reason: { code: 'handler-timeout', message: expect.stringContaining('preprocess') as string },
    });
    expect(fine).toMatchObject({ status: 'fulfilled' });
  });

  it('that does not compile fails the load with its own message', async () => {
    start();
    pools.register(spec('broken', { handlerPath: await handler('broken', 'export const preprocess = ;') }), limits);
    await expect(pools.invoke('broken', request(''))).rejects.toMatchObject({ code: 'model-load-failed' });
  });
});

describe('a batch', () => {
  it('joins waiting calls into one run and gives each its own rows back', async () => {
    start();
    pools.register(spec('relu'), { ...limits, instancesMax: 1, batchMax: 8 });
    const results = await Promise.all(Array.from({ length: 16 }, (_, i) => pools.invoke('relu', input(i, -1, 1, -1))));
    expect(results.map(values)).toEqual(Array.from({ length: 16 }, (_, i) => [i, 0, 1, 0]));
    expect(Math.max(...results.map((result) => result.batchSize))).toBe(8);
  });

  it('is not formed when the outputs cannot be split', async () => {
    start();
    pools.register(spec('mean', { modelPath: meanPath }), { ...limits, instancesMax: 1, batchMax: 8 });
    const results = await Promise.all(Array.from({ length: 6 }, (_, i) => pools.invoke('mean', input(i, i, i, i))));
    expect(results.map(values)).toEqual([[0], [1], [2], [3], [4], [5]]);
  });

  it('waits for more calls no longer than its limit', async () => {
    start();
    pools.register(spec('relu'), { ...limits, batchMax: 8, batchDelayMs: 20 });
    await pools.load('relu');
    const result = await pools.invoke('relu', input(1, 2, 3, 4));
    expect(result.batchSize).toBe(1);
    expect(result.timings.queueMs).toBeGreaterThan(15);
  });

  it('spares the good calls when one spoils the joint run', async () => {
    start();
    pools.register(spec('table', { modelPath: tablePath }), { ...limits, instancesMax: 1, batchMax: 8 });
    const row = (index: bigint): Promise<PoolResult> => pools.invoke('table', tableRow(index));
    const results = await Promise.allSettled([row(1n), row(77n), row(3n)]);
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  });
});

describe('instances', () => {
  it('of an idle function are released', async () => {
    start();
    pools.register(spec('relu', { isolation: 'own' }), { ...limits, idleMs: 0 });
    const first = await pools.invoke('relu', input(1, 2, 3, 4));
    await expect.poll(() => pidsOf('relu'), { timeout: 20_000 }).toEqual([]);
    await expect.poll(() => isAlive(first.instancePid), { timeout: 20_000 }).toBe(false);
  });

  it('of a pinned function are loaded ahead and stay', async () => {
    start();
    pools.register(spec('relu'), { ...limits, idleMs: 0, instancesMin: 1 });
    await pools.load('relu');
    const result = await pools.invoke('relu', input(1, 2, 3, 4));
    expect(result.coldStart).toBe(false);
    expect(pidsOf('relu')).toEqual([result.instancePid]);
  });

  it('of pinned functions are evicted at the limit when nothing else can be', async () => {
    start(roomFor(2));
    for (const key of ['a', 'b']) {
      pools.register(spec(key, { modelBytes: largeBytes }), { ...limits, instancesMin: 1 });
      await pools.load(key);
    }
    pools.register(spec('c', { modelBytes: largeBytes }), { ...limits, instancesMin: 1 });
    pools.register(spec('d', { modelBytes: largeBytes }), limits);
    // An instance that keeps its place is not asked to leave, and does not leave by itself.
    const results = await Promise.all(['c', 'd'].map((key) => pools.invoke(key, input(1, 2, 3, 4))));
    expect(results).toHaveLength(2);
  });

  it('of the function with the lowest expected loss are evicted at the limit', async () => {
    start(roomFor(2));
    for (const key of ['a', 'b', 'c']) pools.register(spec(key, { modelBytes: largeBytes }), limits);
    await pools.invoke('a', input(1, 2, 3, 4));
    // It is called far more often, and last: that outweighs a slow load of 'a' on a busy machine.
    for (let calls = 0; calls < 50; calls++) await pools.invoke('b', input(1, 2, 3, 4));
    await pools.invoke('c', input(1, 2, 3, 4));
    expect(pidsOf('a')).toEqual([]);
    expect(pidsOf('b')).toHaveLength(1);
    expect(pidsOf('c')).toHaveLength(1);
  });

  it('are fewer than the functions, yet every function is served', async () => {
    start(roomFor(1));
    const keys = ['a', 'b', 'c'];
    for (const key of keys) pools.register(spec(key, { modelBytes: largeBytes }), limits);
    const results = await Promise.all(
      [...keys, ...keys, ...keys].map((key, i) => pools.invoke(key, input(i, 0, 0, 0))),
    );
    expect(results.map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('are taken from functions under load for a function that has none', async () => {
    start(roomFor(1));
    // Calls of some milliseconds, so that others wait whenever one has been answered.
    const handlerPath = await handler(
      'takes-milliseconds',
      `export async function preprocess() {
         await new Promise((resolve) => setTimeout(resolve, 5));
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess() { return 'ok'; }`,
    );
    pools.register(spec('a', { handlerPath, modelBytes: largeBytes }), { ...limits, instancesMax: 1 });
    pools.register(spec('b', { modelBytes: largeBytes }), limits);
    const end = new AbortController();
    const endless = async (): Promise<void> => {
      while (!end.signal.aborted) await pools.invoke('a', request(''));
    };
    const load = Promise.all(Array.from({ length: 8 }, endless));
    await pools.invoke('a', request(''));
    const results = [await pools.invoke('b', input(5, 6, 7, 8)), await pools.invoke('b', input(6, 7, 8, 9))];
    end.abort();
    await load;
    expect(results.map((result) => values(result)[0])).toEqual([5, 6]);
  });

  it('stay in place once no call waits for them any more', async () => {
    start(roomFor(1));
    pools.register(spec('gone', { modelBytes: largeBytes }), limits);
    const handlerPath = await handler(
      'waits-a-while',
      `export async function preprocess(request) {
         if (request.text() === 'wait') await new Promise((resolve) => setTimeout(resolve, 300));
         return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }];
       }
       export function postprocess(tensors) { return 'ok'; }`,
    );
    pools.register(spec('slow', { handlerPath, modelBytes: largeBytes }), limits);
    const first = await pools.invoke('slow', request(''));
    const busy = pools.invoke('slow', request('wait'));
    const client = new AbortController();
    const gone = pools.invoke('gone', input(1, 2, 3, 4), { signal: client.signal });
    client.abort();
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
    await busy;
    expect(await pools.invoke('slow', request(''))).toMatchObject({ coldStart: false, instancePid: first.instancePid });
  });

  it('are released by an unload and start again with the next invocation', async () => {
    start();
    pools.register(spec('relu'), limits);
    await pools.invoke('relu', input(1, 2, 3, 4));
    await pools.unload('relu');
    expect(pidsOf('relu')).toEqual([]);
    expect((await pools.invoke('relu', input(1, 2, 3, 4))).coldStart).toBe(true);
  });

  it('cannot start from a file that is no model, and the error says so', async () => {
    start();
    const modelPath = join(folder, 'garbage.onnx');
    await writeFile(modelPath, 'this is no model');
    pools.register(spec('garbage', { modelPath }), limits);
    await expect(pools.invoke('garbage', input(1, 2, 3, 4))).rejects.toMatchObject({
      code: 'model-load-failed',
      message: expect.stringMatching(/protobuf parsing failed/i) as string,
    });
  });

  it('finish what was accepted before the pools stop, and take nothing more', async () => {
    start();
    pools.register(spec('relu'), limits);
    const accepted = Array.from({ length: 5 }, (_, i) => pools.invoke('relu', input(i, 0, 0, 0)));
    const stopped = pools.stop(10_000);
    await expect(pools.invoke('relu', input(1, 2, 3, 4))).rejects.toMatchObject({ code: 'stopping' });
    expect((await Promise.all(accepted)).map((result) => values(result)[0])).toEqual([0, 1, 2, 3, 4]);
    await stopped;
    expect(pidsOf('relu')).toEqual([]);
  });
});
