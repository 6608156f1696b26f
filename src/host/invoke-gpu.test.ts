/** An invocation and the GPUs, both played by hand. */
import { afterEach, expect, test, vi } from 'vitest';
import { functionVersion } from '../../test/host/fakes.ts';
import { CpuError, type CpuPools, type InvokeOptions, type PoolResult } from '../cpu/index.ts';
import { GpuError } from '../gpu/index.ts';
import { tensorOf } from '../tensor/index.ts';
import { GpuInvoker, type InvocationGpus } from './invoke-gpu.ts';
import { Statistics } from './statistics.ts';
import type { GpuOutcome } from './gpu/index.ts';

const patient = {
  signal: undefined,
  deadlineMs: undefined,
  arrivalMs: 0,
};

afterEach(() => void vi.useRealTimers());

const tensor = tensorOf('x', 'FP32', [1], Float32Array.of(1));
const version = functionVersion('shout');
const request = {
  kind: 'request',
  request: { method: 'POST', url: '/', headers: {}, body: Buffer.from('x') },
} as const;
const patience = patient;

const ran: GpuOutcome = {
  kind: 'ran',
  result: {
    outputs: [tensor],
    start: 'warm',
    loadedBytes: 0,
    graph: false,
    timings: { waitMs: 0, gpuMs: 2, totalMs: 2 },
  },
  gpu: 1,
  start: 'cold',
  mode: 'dha',
  rung: undefined,
  queueMs: 3,
  loadMs: 5,
  inferMs: 2,
  predictedMs: 12,
};

const poolResult = (changes: Partial<PoolResult> = {}): PoolResult => ({
  output: { kind: 'response', response: { status: 200, headers: {}, body: Buffer.from('ok') } },
  timings: { queueMs: 1, loadMs: 0, preprocessMs: 0.5, inferMs: 11, postprocessMs: 0.25 },
  coldStart: false,
  batchSize: 1,
  instancePid: 7,
  ...changes,
});

type PoolInvoke = (options: InvokeOptions) => Promise<PoolResult>;

function invoker(outcomes: readonly (GpuOutcome | Error)[], pool: PoolInvoke, whyNot?: string): GpuInvoker {
  const left = [...outcomes];
  const gpus: InvocationGpus = {
    whyNot: () => whyNot,
    invoke: () => {
      const outcome = left.shift()!;
      return outcome instanceof Error ? Promise.reject(outcome) : Promise.resolve(outcome);
    },
    load: () => Promise.resolve(true),
    unload: () => Promise.resolve(),
    pid: 9,
  };
  const pools = { invoke: (_key: string, _input: unknown, options: InvokeOptions) => pool(options) };
  return new GpuInvoker(gpus, pools as unknown as CpuPools, new Statistics());
}

/** As an instance does: the model is asked for once, between the halves. */
const instance: PoolInvoke = async ({ runModel }) => {
  const outputs = await runModel!([tensor]);
  return poolResult(outputs === undefined ? {} : { modelElsewhere: true });
};

function offload(): { readonly outcome: GpuOutcome; readonly doneCount: () => number } {
  let count = 0;
  return { outcome: { kind: 'offload', reason: 'gpu would be late', done: () => count++ }, doneCount: () => count };
}

test('what the GPUs cannot take goes to the CPU pool with the reason, and nobody is asked', async () => {
  const attempt = await invoker([], instance, 'not planned yet').run(version, request, patience, {});
  expect(attempt).toMatchObject({ kind: 'offload', reason: 'not planned yet' });
});

test("a handler's call has the GPU's times and its own", async () => {
  const attempt = await invoker([ran], instance).run(version, request, patience, {});
  expect(attempt).toEqual({
    kind: 'ran',
    placement: { kind: 'gpu', gpu: 1, start: 'cold', mode: 'dha' },
    result: poolResult({
      modelElsewhere: true,
      coldStart: true,
      timings: { queueMs: 4, loadMs: 5, preprocessMs: 0.5, inferMs: 2, postprocessMs: 0.25 },
    }),
  });
});

test('a call that the scheduler offloads is done in the same instance, and the scheduler is told of its end once', async () => {
  const { outcome, doneCount } = offload();
  let doneWhenAnswered: number | undefined;
  const attempt = await invoker([outcome], async (options) => {
    const result = await instance(options);
    doneWhenAnswered = doneCount();
    return result;
  }).run(version, request, patience, {});
  expect(attempt).toMatchObject({
    kind: 'ran',
    placement: { kind: 'cpu-pool', coldStart: false, reason: 'gpu would be late' },
  });
  expect([doneWhenAnswered, doneCount()]).toEqual([0, 1]);
});

test('after the death of an instance only what the next one asked for counts', async () => {
  const { outcome, doneCount } = offload();
  const attempt = await invoker([outcome, ran], async (options) => {
    // The first asks, and dies before it is told; the second asks again.
    const first = options.runModel!([tensor]);
    const second = instance(options);
    await first;
    return await second;
  }).run(version, request, patience, {});
  expect(attempt).toMatchObject({ kind: 'ran', placement: { kind: 'gpu' } });
  expect(doneCount()).toBe(1);
});

test('a handler whose queue is full may still be served by a worker', async () => {
  const full = new CpuError('queue-full', '100 wait already');
  const attempt = await invoker([ran], () => Promise.reject(full)).run(version, request, patience, {});
  expect(attempt).toMatchObject({ kind: 'offload', reason: '100 wait already' });
});

/** Waits for a GPU until it is given up; tells how often that was so. */
function waiting(): { readonly gpu: GpuInvoker; readonly shown: AbortSignal[] } {
  const shown: AbortSignal[] = [];
  const gpus: InvocationGpus = {
    whyNot: () => undefined,
    invoke: (_version, _inputs, signal) => {
      shown.push(signal!);
      return new Promise((_resolve, reject) => {
        signal!.addEventListener('abort', () => reject(new GpuError('cancelled', 'given up')));
      });
    },
    load: () => Promise.resolve(true),
    unload: () => Promise.resolve(),
    pid: 9,
  };
  return { gpu: new GpuInvoker(gpus, undefined as unknown as CpuPools, new Statistics()), shown };
}

const tensors = { kind: 'tensors', tensors: [tensor] } as const;

test('an invocation with a deadline waits for a GPU until then, a fraction of a millisecond or weeks away', async () => {
  vi.useFakeTimers();
  for (const timeoutMs of [1500.25, 2 ** 31 - 100]) {
    const { gpu, shown } = waiting();
    const deadlineMs = performance.now() + timeoutMs;
    const failure = gpu.run(version, tensors, { ...patience, deadlineMs }, {}).catch((error: unknown) => error);
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(shown.map(({ aborted }) => aborted)).toEqual([false]);
    await vi.advanceTimersByTimeAsync(2);
    expect(await failure).toMatchObject({ code: 'deadline-passed' });
    expect(vi.getTimerCount()).toBe(0);
  }
});

test('a deadline farther away than timers reach is none', async () => {
  vi.useFakeTimers();
  const { gpu, shown } = waiting();
  const client = new AbortController();
  const deadlineMs = performance.now() + 2 ** 40;
  const patient = { ...patience, deadlineMs, signal: client.signal };
  const failure = gpu.run(version, tensors, patient, {}).catch((error: unknown) => error);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(shown.map(({ aborted }) => aborted)).toEqual([false]);
  client.abort();
  expect(await failure).toMatchObject({ code: 'client-gone' });
});

test('no GPU is asked for an invocation whose deadline has passed', async () => {
  const { gpu, shown } = waiting();
  const deadlineMs = performance.now() - 1;
  await expect(gpu.run(version, tensors, { ...patience, deadlineMs }, {})).rejects.toMatchObject({
    code: 'deadline-passed',
  });
  expect(shown).toEqual([]);
});

test('what is shed is told in words, and what fails in the pool is passed on', async () => {
  const shed: GpuOutcome = { kind: 'shed', reason: 'no GPU would finish within the SLO' };
  await expect(invoker([shed], instance).run(version, request, patience, {})).rejects.toMatchObject({
    code: 'deadline-passed',
    message: 'no GPU would finish within the SLO, and this host sheds what would be late',
  });
  const failure = new CpuError('handler-failed', 'no');
  await expect(invoker([], () => Promise.reject(failure)).run(version, request, patience, {})).rejects.toBe(failure);
});
