/** Invocations of CPU pools: their queue, their handlers and their batches. */
import { getEventListeners } from 'node:events';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  bodyOf as body,
  poolLimits as limits,
  requestOf as request,
  rowsOfFour as input,
  TestPools,
  textHandler,
  valuesOf as values,
} from '../../test/support/cpu-pools.ts';
import { writeMeanModel, writeTableModel } from '../../test/support/models.ts';
import { modelOfSteps } from '../../test/support/row-models.ts';
import { writeModel } from '../onnx/index.ts';
import { tensorOf } from '../tensor/index.ts';
import type { CpuPools, PoolInput, PoolResult, RowsMix } from './index.ts';

const on = new TestPools();
let meanPath: string;
let tablePath: string;
let pools: CpuPools;

beforeAll(async () => {
  [meanPath, tablePath] = await Promise.all([writeMeanModel(on.folder), writeTableModel(on.folder)]);
});

function tableRow(index: bigint): PoolInput {
  return { kind: 'tensors', tensors: [tensorOf('x', 'INT64', [1], BigInt64Array.of(index))] };
}

describe('an invocation', () => {
  it('is answered by a cold instance, then by the same one warm', async () => {
    pools = on.start({ blankInstances: 1 });
    pools.register(on.spec('relu'), limits);

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
    pools = on.start({ blankInstances: 1 });
    pools.register(on.spec('relu'), { ...limits, instancesMax: 1 });

    const results = await Promise.all(Array.from({ length: 20 }, (_, i) => pools.invoke('relu', input(i, -i, i, -i))));

    expect(results.map((result) => values(result)[0])).toEqual(Array.from({ length: 20 }, (_, i) => i));
    expect(new Set(results.map((result) => result.instancePid)).size).toBe(1);
    expect(results.every((result) => result.coldStart)).toBe(true);
  });

  it('of a function that is not registered is refused by name', async () => {
    pools = on.start();
    await expect(pools.invoke('nobody', input(1, 2, 3, 4))).rejects.toMatchObject({
      code: 'unknown-function',
      message: expect.stringContaining('nobody') as string,
    });
  });

  it('that waits for an instance while its function is removed with its model file is told so', async () => {
    pools = on.start();
    pools.register(on.spec('gone', { modelPath: join(on.folder, 'gone.onnx') }), limits);
    const call = pools.invoke('gone', input(1, 2, 3, 4)).catch((error: unknown) => error);
    await pools.unregister('gone');
    expect(await call).toMatchObject({ code: 'unknown-function', message: "function 'gone' was removed" });
  });

  it('that the model itself cannot take is an input error, and the instance goes on', async () => {
    pools = on.start();
    pools.register(on.spec('table', { modelPath: tablePath }), limits);

    await expect(pools.invoke('table', tableRow(99n))).rejects.toMatchObject({ code: 'inference-input' });
    const after = await pools.invoke('table', tableRow(2n));

    expect(values(after)).toEqual([20, 21]);
    expect(after.coldStart).toBe(false);
  });

  it('whose deadline passes in the queue is refused and never started', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), limits);
    const late = pools.invoke('relu', input(1, 2, 3, 4), { deadlineMs: performance.now() + 1 });
    await expect(late).rejects.toMatchObject({ code: 'deadline-passed' });
  });

  it('is dropped from the queue when its client goes', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), limits);
    const client = new AbortController();
    const gone = pools.invoke('relu', input(1, 2, 3, 4), { signal: client.signal });
    client.abort();
    await expect(gone).rejects.toMatchObject({ code: 'cancelled' });
    expect(pools.states()[0]?.queueLength).toBe(0);
  });

  it('leaves no reference to a removed function on a connection that stays open', async () => {
    pools = on.start();
    const client = new AbortController();
    for (const key of ['first', 'second', 'third']) {
      pools.register(on.spec(key), limits);
      await pools.invoke(key, input(1, 2, 3, 4), { signal: client.signal });
      await pools.unregister(key);
    }
    expect(getEventListeners(client.signal, 'abort')).toHaveLength(0);
  });
});

describe('a handler', () => {
  it('turns a request into tensors and tensors into a reply', async () => {
    pools = on.start();
    pools.register(on.spec('text', { handlerPath: await on.handler('text', textHandler) }), limits);
    const result = await pools.invoke('text', request('1,-2,3,-4'));
    expect(body(result)).toBe('1,0,3,0');
    expect(result.output).toMatchObject({ response: { status: 200 } });
  });

  it('may reply with a web Response, bytes, text or anything that is JSON', async () => {
    pools = on.start();
    const handlerPath = await on.handler(
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
    pools.register(on.spec('replies', { handlerPath }), limits);
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
    pools = on.start();
    pools.register(on.spec('text', { handlerPath: await on.handler('text', textHandler) }), limits);
    await expect(pools.invoke('text', request('one,two'))).rejects.toMatchObject({
      code: 'handler-input',
      status: 400,
      message: 'that is not a list of numbers',
    });
  });

  it('that never returns is stopped at its time limit, and the function goes on', async () => {
    pools = on.start();
    const handlerPath = await on.handler(
      'hangs',
      textHandler.replace('const data', `while (request.text() === 'hang');\n  const data`),
    );
    pools.register(on.spec('hangs', { handlerPath }), { ...limits, handlerTimeoutMs: 1000 });
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
    pools = on.start();
    pools.register(
      on.spec('broken', { handlerPath: await on.handler('broken', 'export const preprocess = ;') }),
      limits,
    );
    await expect(pools.invoke('broken', request(''))).rejects.toMatchObject({ code: 'model-load-failed' });
  });
});

describe('a batch', () => {
  it('joins waiting calls into one run and gives each its own rows back', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), { ...limits, instancesMax: 1, batchMax: 8 });
    const results = await Promise.all(Array.from({ length: 16 }, (_, i) => pools.invoke('relu', input(i, -1, 1, -1))));
    expect(results.map(values)).toEqual(Array.from({ length: 16 }, (_, i) => [i, 0, 1, 0]));
    expect(Math.max(...results.map((result) => result.batchSize))).toBe(8);
  });

  it('says how many rows its run had', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), { ...limits, instancesMax: 1, batchMax: 8 });
    const sizes = Array.from({ length: 16 }, (_, i) => 1 + (i % 3));
    const results = await Promise.all(
      sizes.map((rows) => pools.invoke('relu', input(...Array.from({ length: rows * 4 }, () => 1)))),
    );
    expect(results.some(({ batchSize }) => batchSize > 1)).toBe(true);
    // Each call has its share of its run's rows, and together these are the rows of all calls.
    const shares = results.map(({ batchSize, batchRows }, i) => (batchRows ?? sizes[i]!) / batchSize);
    expect(shares.reduce((sum, share) => sum + share)).toBeCloseTo(sizes.reduce((sum, rows) => sum + rows));
    for (const { batchSize, batchRows } of results) expect(batchRows === undefined).toBe(batchSize === 1);
  });

  it('is not formed when the outputs cannot be split', async () => {
    pools = on.start();
    pools.register(on.spec('mean', { modelPath: meanPath }), { ...limits, instancesMax: 1, batchMax: 8 });
    const results = await Promise.all(Array.from({ length: 6 }, (_, i) => pools.invoke('mean', input(i, i, i, i))));
    expect(results.map(values)).toEqual([[0], [1], [2], [3], [4], [5]]);
  });

  it.each(['mean of the rows', 'threshold on the maximum', 'dynamic quantization', 'a maximum inside an If'])(
    'of a model that mixes rows (%s) is compared with runs alone: each call gets its own answer, and no more are joined',
    async (step) => {
      const modelPath = join(on.folder, 'mixing.onnx');
      await writeModel(modelOfSteps([step], 7), modelPath);
      const mixed: RowsMix[] = [];
      pools = on.start({ comparedShare: 1, onRowsMix: (mix) => mixed.push(mix) });
      pools.register(on.spec('mixing', { modelPath }), { ...limits, instancesMax: 1, batchMax: 8 });
      pools.register(on.spec('alone', { modelPath }), { ...limits, instancesMax: 1, batchMax: 1 });
      const calls = [input(1, 2, 3, 4), input(5e3, 6e3, 7e3, 8e3), input(-1, 0, 1, 0.5)];
      const alone = [];
      for (const call of calls) alone.push(values(await pools.invoke('alone', call)));
      await pools.load('mixing');
      for (let round = 0; round < 2; round++) {
        const results = await Promise.all(calls.map((call) => pools.invoke('mixing', call)));
        for (const [index, result] of results.entries()) {
          expect(values(result)).toEqual(alone[index]!.map((value) => expect.closeTo(value, 3) as number));
        }
      }
      expect(mixed).toEqual([{ key: 'mixing', reason: expect.stringContaining("output 'y'") as string }]);
      const after = await Promise.all(calls.map((call) => pools.invoke('mixing', call)));
      expect(after.map(({ batchSize }) => batchSize)).toEqual([1, 1, 1]);
    },
  );

  it('of independent rows goes on after any number of comparisons', async () => {
    const modelPath = join(on.folder, 'independent.onnx');
    await writeModel(modelOfSteps(['gemm', 'softmax', 'static quantization', 'best of a row'], 7), modelPath);
    const mixed: RowsMix[] = [];
    pools = on.start({ comparedShare: 1, onRowsMix: (mix) => mixed.push(mix) });
    pools.register(on.spec('own', { modelPath }), { ...limits, instancesMax: 1, batchMax: 8 });
    await pools.load('own');
    let joined = 0;
    for (let round = 0; round < 20; round++) {
      const calls = Array.from({ length: 5 }, (_, i) => pools.invoke('own', input(Math.sin(round), i, -round, 1)));
      for (const { batchSize } of await Promise.all(calls)) joined = Math.max(joined, batchSize);
    }
    expect(mixed).toEqual([]);
    expect(joined).toBeGreaterThan(1);
  });

  it('waits for more calls no longer than its limit', async () => {
    pools = on.start();
    pools.register(on.spec('relu'), { ...limits, batchMax: 8, batchDelayMs: 20 });
    await pools.load('relu');
    const result = await pools.invoke('relu', input(1, 2, 3, 4));
    expect(result.batchSize).toBe(1);
    expect(result.timings.queueMs).toBeGreaterThan(15);
  });

  it('spares the good calls when one spoils the joint run', async () => {
    pools = on.start();
    pools.register(on.spec('table', { modelPath: tablePath }), { ...limits, instancesMax: 1, batchMax: 8 });
    const row = (index: bigint): Promise<PoolResult> => pools.invoke('table', tableRow(index));
    const results = await Promise.allSettled([row(1n), row(77n), row(3n)]);
    expect(results.map((result) => result.status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  });
});
