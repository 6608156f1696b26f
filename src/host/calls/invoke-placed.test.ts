/** Invocations between the scheduler, a fake GPU process, a fake CPU pool and a fake queue. */
import { afterEach, expect, test, vi } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { layerBytes, layerCount, plansFor } from '../../../test/support/gpu-shell.ts';
import { CpuError, type CpuPools, type InvokeOptions, type PoolResult } from '../../cpu/index.ts';
import { QueueError, type OverflowQueue } from '../../queue/index.ts';
import { policies, type Policy } from '../../schedule/index.ts';
import { tensorOf } from '../../tensor/index.ts';
import { PlacedInvoker, type InvocationGpus } from './invoke-placed.ts';
import { LiveScheduler, type GpuRunner, type LiveSchedulerOptions } from '../../live/index.ts';
import { placementText } from './placement.ts';
import { WorkersPlace } from '../queueing/workers-place.ts';

afterEach(() => void vi.useRealTimers());

const tensor = tensorOf('x', 'FP32', [1], Float32Array.of(1));
const tensors = { kind: 'tensors', tensors: [tensor] } as const;
const version = functionVersion('shout');
const request = {
  kind: 'request',
  request: { method: 'POST', url: '/', headers: {}, body: Buffer.from('x') },
} as const;

const poolResult = (changes: Partial<PoolResult> = {}): PoolResult => ({
  output: { kind: 'response', response: { status: 200, headers: {}, body: Buffer.from('ok') } },
  timings: { queueMs: 1, loadMs: 0, preprocessMs: 0.5, inferMs: 11, postprocessMs: 0.25 },
  coldStart: false,
  batchSize: 1,
  instancePid: 7,
  ...changes,
});

type PoolInvoke = (options: InvokeOptions) => Promise<PoolResult>;

/** As an instance does: asks for the model once, between the halves. */
const instance: PoolInvoke = async ({ runModel }) => {
  const outputs = await runModel?.([tensor]);
  return poolResult(outputs === undefined ? {} : { modelElsewhere: true });
};

const gpus: InvocationGpus = {
  whyNot: () => undefined,
  coldCauseOf: () => 'first use',
  ran: () => undefined,
  keepsOff: () => undefined,
  joinOf: () => undefined,
  wantsInputs: () => false,
  load: () => Promise.resolve(true),
  pid: 9,
};

const unused = (): Promise<number> => Promise.resolve(0);
const failing = (): Promise<never> =>
  Promise.reject(Object.assign(new Error('no such kernel'), { name: 'GpuError', code: 'misuse' }));
/** The first instance asks, and dies before the answer; the second asks again. */
const dying: PoolInvoke = async (options) => {
  const first = options.runModel!([tensor]);
  const second = instance(options);
  await first;
  return await second;
};

interface Setting {
  readonly pool?: PoolInvoke;
  /** Rejects runs on the GPU; undefined: there is no GPU. */
  readonly run?: GpuRunner['run'];
  readonly policy?: Policy;
  /** How calls go to the workers: four slots, a run of 5 ms. */
  readonly workers?: { readonly submit: OverflowQueue['submit']; readonly roundTripMs: number };
  readonly live?: Partial<LiveSchedulerOptions>;
}

const runOnGpu: GpuRunner['run'] = async () => ({
  outputs: [tensor],
  start: 'cold',
  loadedBytes: layerBytes * layerCount,
  fromDisk: false,
  graph: false,
  timings: { waitMs: 0, gpuMs: 2, totalMs: 2 },
});

function invoker({ pool = instance, run, policy = policies.best, workers, live: more }: Setting): {
  readonly invoker: PlacedInvoker;
  readonly live: LiveScheduler;
  readonly place: WorkersPlace | undefined;
} {
  const place = workers && new WorkersPlace(overflowTo(workers));
  const others = place === undefined ? [] : [place];
  const live = new LiveScheduler({
    policy,
    others,
    cpu: { cores: 1, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: 10, cores: 1 }),
    ...more,
  });
  if (place !== undefined) {
    place.look();
  }
  if (run !== undefined) {
    live.setGpus([{ capacityBytes: 100, switch: 0, linkGBps: 1, uplinkGBps: 1 }], { run, load: () => Promise.resolve({ bytes: 0, fromDisk: false }), trim: unused, release: unused, keep: unused }); // prettier-ignore
    live.functions.offer(version, plansFor(1, false), false);
  }
  const pools = { invoke: (_key: string, _input: unknown, options: InvokeOptions) => pool(options) };
  const made = new PlacedInvoker({
    live,
    pools: pools as unknown as CpuPools,
    others,
    gpus: run === undefined ? undefined : gpus,
  });
  return { invoker: made, live, place };
}

test('without GPUs and workers an invocation runs on the CPU pool, and no overflow is told', async () => {
  const { placement } = await invoker({}).invoker.run(version, tensors, {}, {});
  expect(placementText(placement)).toBe('cpu pool warm');
});

test('a GPU that fails sends the invocation to the CPU pool, and the reply says so', async () => {
  const { placement } = await invoker({ run: failing }).invoker.run(version, tensors, {}, {});
  expect(placementText(placement)).toBe('cpu pool warm overflow: gpu0 failed: no such kernel');
  expect(placement.overflow).toMatchObject({ from: 'gpu', to: 'cpu', reason: 'failed' });
});

test("a handler's call has the GPU's times and its own, and the cause of its cold start", async () => {
  const { invoker: made } = invoker({ run: runOnGpu });
  const { result, placement } = await made.run(version, request, {}, {});
  expect(placement).toMatchObject({ kind: 'gpu', gpu: 0, start: 'cold', coldCause: 'first use' });
  expect(result).toMatchObject({ coldStart: true, timings: { preprocessMs: 0.5, postprocessMs: 0.25 } });
});

test('a call that the scheduler keeps on the CPU ends in the same instance, whose cores are free afterwards', async () => {
  const { invoker: made, live } = invoker({ run: runOnGpu });
  // The GPU would take 22 ms.
  const hurried = { ...version, settings: { ...version.settings, sloMs: 15 } };
  live.functions.offer(hurried, plansFor(1, false), false);
  for (let call = 0; call < 3; call++) {
    const { placement } = await made.run(hurried, request, {}, {});
    expect(placementText(placement)).toMatch(
      /^cpu pool warm overflow: gpu0 would finish in \d+ ms, after the SLO of 15 ms$/,
    );
  }
});

test("after the death of an instance only the next one's run of the model counts", async () => {
  const { placement } = await invoker({ run: runOnGpu, pool: dying }).invoker.run(version, request, {}, {});
  expect(placement).toMatchObject({ kind: 'gpu' });
});

const submitted: OverflowQueue['submit'] = () => Promise.resolve({ result: poolResult(), worker: 'w1' });

/** A queue with one worker of four cores. */
function overflowTo({ submit, roundTripMs }: NonNullable<Setting['workers']>): OverflowQueue {
  const workers = [{ cores: 4, inFlight: 0, draining: false }];
  const queue = {
    submit,
    roundTripMs,
    offer: () => ({ offer: { callMs: 5 }, startMs: 0 }),
    workers: () => workers,
    state: () => ({ outstanding: 0 }),
  };
  return queue as unknown as OverflowQueue;
}

test('what fails in a CPU pool is tried at no worker, handler or not', async () => {
  const failure = new CpuError('instance-died', 'two instances died');
  const submit = vi.fn<OverflowQueue['submit']>(submitted);
  for (const run of [undefined, runOnGpu]) {
    const { invoker: made } = invoker({
      run: run as GpuRunner['run'],
      pool: () => Promise.reject(failure),
      workers: { submit, roundTripMs: 50 },
    });
    await expect(made.run(version, request, {}, {})).rejects.toBe(failure);
  }
  expect(submit).not.toHaveBeenCalled();
});

test('while the only core is busy a worker that answers sooner takes the call, and one that fails gives it back', async () => {
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  const pool = vi.fn<PoolInvoke>().mockImplementationOnce(() => held.then(() => poolResult())).mockImplementation(instance); // prettier-ignore
  const submit = vi.fn<OverflowQueue['submit']>(submitted);
  const live = { cpuOffer: () => ({ latencyMs: 1000, cores: 1 }) };
  const { invoker: made, place } = invoker({ pool, workers: { submit, roundTripMs: 1000 }, live });
  const first = made.run(version, tensors, {}, {});
  const second = await made.run(version, tensors, {}, {});
  expect(placementText(second.placement)).toMatch(/^remote worker w1 overflow: cpu pool would finish in \d+ ms/);
  submit.mockRejectedValueOnce(new QueueError('worker-gone', 'w1 is gone'));
  const third = made.run(version, tensors, {}, {});
  release();
  expect((await first).placement.kind).toBe('cpu-pool');
  expect((await third).placement).toMatchObject({ kind: 'cpu-pool' });
  expect(place!.cameBack).toBe(1);
});

test('a call at a worker says when this host had to begin, and runs here once it is taken back', async () => {
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  const pool = vi.fn<PoolInvoke>().mockImplementationOnce(() => held.then(() => poolResult())).mockImplementation(instance); // prettier-ignore
  const submit = vi.fn<OverflowQueue['submit']>();
  const live = { cpuOffer: () => ({ latencyMs: 10_000, cores: 1 }) };
  const { invoker: made, place } = invoker({ pool, workers: { submit, roundTripMs: 15_000 }, live });
  submit.mockImplementationOnce(async (_key, _input, { dueMs, takeBack } = {}) => {
    expect(takeBack!.atMs).toBeCloseTo(dueMs! - 10_005, 6);
    expect(takeBack!.wouldBeInTime()).toBe(false); // Its only core is taken.
    release();
    await first;
    expect(takeBack!.wouldBeInTime()).toBe(true);
    throw new QueueError('taken-back', 'w1 had not answered');
  });
  const patient = { ...version, settings: { ...version.settings, sloMs: 15_000 } };
  const first = made.run(patient, tensors, {}, {});
  const second = await made.run(patient, tensors, {}, {});
  expect(second.placement).toMatchObject({ kind: 'cpu-pool' });
  expect(place!.cameBack).toBe(0);
});

test('with admission shed, a call that would be late everywhere is refused at once with a time to retry', async () => {
  const shedding = { ...version, settings: { ...version.settings, sloMs: 5, admission: 'shed' as const } };
  const failure: unknown = await invoker({})
    .invoker.run(shedding, tensors, {}, {})
    .catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: 'shed', status: 503, retryAfterS: 1 });
  expect(String(failure)).toMatch(/function 'shout' would answer in 10 ms, after its SLO of 5\.0 ms/);
});

/** Every core is taken. */
async function waiting(wish: Parameters<PlacedInvoker['run']>[2]): Promise<unknown> {
  const { invoker: made } = invoker({ pool: () => new Promise(() => undefined) });
  void made.run(version, tensors, {}, {});
  return await made.run(version, tensors, wish, {}).catch((error: unknown) => error);
}

test('an invocation with a deadline waits for a place until then, a fraction of a millisecond or weeks away', async () => {
  vi.useFakeTimers();
  for (const timeoutMs of [1500.25, 2 ** 31 - 100]) {
    let isOver = false;
    const failure = waiting({ deadlineMs: performance.now() + timeoutMs }).finally(() => (isOver = true));
    await vi.advanceTimersByTimeAsync(timeoutMs - 1);
    expect(isOver).toBe(false);
    await vi.advanceTimersByTimeAsync(2);
    expect(await failure).toMatchObject({ code: 'deadline-passed' });
  }
});

test('a deadline farther away than timers reach is none, and a client that leaves ends the wait', async () => {
  vi.useFakeTimers();
  const client = new AbortController();
  const failure = waiting({ deadlineMs: performance.now() + 2 ** 40, signal: client.signal });
  await vi.advanceTimersByTimeAsync(10_000);
  client.abort();
  expect(await failure).toMatchObject({ code: 'cancelled' });
});

test('no place is asked for an invocation whose deadline has passed', async () => {
  expect(await waiting({ deadlineMs: performance.now() - 1 })).toMatchObject({ code: 'deadline-passed' });
});
