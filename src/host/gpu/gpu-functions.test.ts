/** What happens to functions when the GPU process ends between the steps of their registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { functionVersion, metadata, spec } from '../../../test/host/fake-store.ts';
import { gpuBench } from '../../../test/gpu/host/gpu-bench.ts';
import { GpuError, sizingOf, type GpuClient, type GpuCoverage, type GpuFunctionSpec } from '../../gpu/index.ts';
import { whyNotOnGpu } from './function-state.ts';
import type { GpuFunctions } from './gpu-functions.ts';
import type { GpuRuntime, PrepareOptions } from './prepare.ts';

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'turntable-functions-'));
});
afterEach(() => rm(dataDir, { recursive: true, force: true }));

const layers = [{ name: 'layer', kind: 'recurrent' as const, bytes: 4096 }];
const coverage: GpuCoverage = {
  covered: true,
  layers,
  weightBytes: 4096,
  launches: 1,
};
const measured = { unit: 'ms', layers: [{ ...layers[0]!, load: 1, exec: 1, dha: 2 }] };

/** A fake client whose processes can be ended; each process knows only the functions registered with it. */
class Processes {
  readonly calls: string[] = [];
  readonly #known = new Set<string>();
  readonly #ended = new Map<string, () => void>();

  readonly client = {
    register: ({ key }: { key: string }) => this.#answer('register', () => (this.#known.add(key), coverage)),
    registerAgain: (key: string) => this.#answer('register again', () => this.#known.add(key)),
    unregister: () => Promise.resolve(),
    evict: (key: string) => this.#knowing('evict', key, () => 0),
    measure: (key: string) => this.#knowing('measure', key, () => measured),
    measureOperators: (key: string) =>
      this.#knowing('operators', key, () => {
        throw new GpuError('invalid', 'its operators cannot be timed');
      }),
  } as unknown as GpuClient;

  /** Ends the process, and starts the next one, just before this call. */
  endBefore(call: string, functions: GpuFunctions, ground: GpuRuntime): void {
    this.#ended.set(call, () => {
      this.#known.clear();
      functions.down('it was ended');
      functions.up(ground);
    });
  }

  #answer<Result>(call: string, act: () => Result): Promise<Result> {
    const end = this.#ended.get(call);
    this.#ended.delete(call);
    end?.();
    this.calls.push(call);
    return new Promise((resolve) => resolve(act()));
  }

  #knowing<Result>(call: string, key: string, act: () => Result): Promise<Result> {
    return this.#answer(call, () => {
      if (!this.#known.has(key)) throw new GpuError('unknown-function', `the GPU process knows no function '${key}'`);
      return act();
    });
  }
}

test.each<[call: string, settings: Partial<PrepareOptions['settings']>, calls: readonly string[]]>([
  ['measure', {}, ['register', 'measure', 'register', 'measure']],
  ['operators', { hybrid: 'memory', hybridCores: 1 }, ['register', 'measure', 'operators', 'register', 'operators']],
])(
  'a function that waits for its turn to be timed while the GPU process ends is registered with the next one: %s',
  async (call, settings, calls) => {
    const processes = new Processes();
    const { functions, runtime, store, close } = gpuBench({ dataDir, client: processes.client, settings });
    processes.endBefore(call, functions, runtime);
    functions.up(runtime);
    const version = functionVersion('waits');
    store.put(version);
    await functions.settled();
    expect(processes.calls.filter((each) => each !== 'evict')).toEqual(calls);
    expect(functions.record(version.key)?.state.kind).toBe('planned');
    expect(runtime.scheduler.plansOf(version.key)?.mode).toBe('dha');
    await close();
  },
);

const mebibyte = 2 ** 20;

/** A GPU process with two layers that can be coded, of which the second one is decoded more slowly than it is copied. */
function codingBench() {
  const calls: string[] = [];
  const decodeMs = [0.1, 9];
  const named = decodeMs.map((_, index) => ({ name: `layer${index}`, kind: 'linear' as const, bytes: 8 * mebibyte }));
  const registered = new Map<string, readonly number[]>();
  const codedBytes = 7 * mebibyte;
  const isCoded = (key: string, layer: number): boolean => !registered.get(key)!.includes(layer);
  const client = {
    register: ({ key, settings }: GpuFunctionSpec): Promise<GpuCoverage> => {
      expect(registered.has(key)).toBe(false);
      registered.set(key, settings?.asTheyAre ?? []);
      calls.push(`register ${registered.get(key)!.join()}`);
      const layers = named.map((layer, index) => (isCoded(key, index) ? { ...layer, codedBytes } : layer));
      return Promise.resolve({ covered: true, layers, weightBytes: 16 * mebibyte, launches: 2 });
    },
    unregister: (key: string) => {
      calls.push('unregister');
      registered.delete(key);
      return Promise.resolve();
    },
    evict: () => Promise.resolve(0),
    measure: (key: string) => {
      calls.push('measure');
      const layers = named.map((layer, index) => {
        const timed = Object.assign({}, layer, { load: 1, exec: 1, dha: 9 });
        // Another function's weights, which take a little more.
        const coded = { bytes: codedBytes + 256, decode: decodeMs[index]! };
        return isCoded(key, index) ? Object.assign(timed, { coded }) : timed;
      });
      return Promise.resolve({ unit: 'ms', layers });
    },
  } as unknown as GpuClient;
  return { calls, codedBytes, bench: gpuBench({ dataDir, client, settings: { mode: 'pipeswitch' } }) };
}

test('a layer whose decoding is slower than its copy comes as it is, and offers have what the link then carries', async () => {
  const { calls, codedBytes, bench } = codingBench();
  const { functions, store, close } = bench;
  const runtime: GpuRuntime = { ...bench.runtime, isEmulated: false, inPrecision: () => runtime };
  functions.up(runtime);
  const version = functionVersion('coded');
  store.put(version);
  await functions.settled();
  expect(calls).toEqual(['register ', 'measure', 'unregister', 'register 1', 'measure']);
  const [offer] = runtime.scheduler.plansOf(version.key)!.offers;
  expect(offer!.ways[0].transfers[0].bytes[0]).toBe(codedBytes + 8 * mebibyte);
  // Both profiles are kept: the next function of this structure is measured in neither form.
  calls.length = 0;
  store.put(functionVersion('twin'));
  await functions.settled();
  expect(calls).toEqual(['register ', 'unregister', 'register 1']);
  await close();
});

test('an emulated GPU, whose times mean nothing, gets all layers coded that can be', async () => {
  const { calls, bench } = codingBench();
  bench.functions.up(bench.runtime);
  bench.store.put(functionVersion('coded'));
  await bench.functions.settled();
  expect(calls).toEqual(['register ', 'measure']);
  await bench.close();
});

/** The model has programs for values of `sizes` without a 0. */
function sizedBench() {
  const tried: string[] = [];
  const client = {
    register: ({ shapes }: GpuFunctionSpec): Promise<GpuCoverage> => {
      const values = shapes.find(({ name }) => name === 'sizes')?.values;
      if (sizingOf(shapes).size > 0) tried.push(String(values));
      const obstacles = [{ node: 'shaped', operator: 'Reshape', reason: `nothing has the shape ${String(values)}` }];
      const isCovered = values !== undefined && !values.includes(0);
      return Promise.resolve(isCovered ? coverage : { covered: false, obstacles, sizing: ['sizes'] });
    },
    unregister: () => Promise.resolve(),
    evict: () => Promise.resolve(0),
    measure: () => Promise.resolve(measured),
  } as unknown as GpuClient;
  const bench = gpuBench({ dataDir, client });
  const version = functionVersion('sized', {
    metadata: metadata([spec('x', 'FP32', [2, 6]), spec('sizes', 'INT64', [2])], [spec('y', 'FP32', ['a', 'b'])]),
  });
  bench.functions.up(bench.runtime);
  bench.store.put(version);
  const stateAfter = async (...sizes: readonly number[]): Promise<unknown> => {
    const values = new BigInt64Array(sizes.map(BigInt));
    bench.functions.calls.keepsOff(version.key, [
      { name: 'x', datatype: 'FP32', shape: [2, 6], data: Buffer.alloc(48) },
      { name: 'sizes', datatype: 'INT64', shape: [2], data: Buffer.from(values.buffer) },
    ]);
    await bench.functions.settled();
    return bench.functions.record(version.key)?.state;
  };
  return { ...bench, version, tried, stateAfter };
}

const unsized = { kind: 'unsized', inputs: ['sizes'] };

test('values of calls are tried until there is a program for some, and those without one are not tried twice', async () => {
  const { functions, version, tried, stateAfter, close } = sizedBench();
  await functions.settled();
  expect(functions.record(version.key)?.state).toEqual(unsized);
  for (const size of [1, 2, 2, 1, 3]) {
    const reason = expect.stringMatching(/^Reshape \(shaped\): nothing has the shape \d,0$/) as string;
    expect(await stateAfter(size, 0)).toEqual({ ...unsized, reason });
  }
  expect(tried).toEqual(['1,0', '2,0', '3,0']);
  // After three in vain, three calls pass before the next.
  for (const size of [4, 5, 6]) await stateAfter(size, 0);
  expect(tried).toEqual(['1,0', '2,0', '3,0']);
  expect(await stateAfter(3, 4)).toEqual({ kind: 'planned' });
  expect(tried.at(-1)).toBe('3,4');
  await close();
});

const steps = ['register', 'uncovered', 'check', 'measure', 'operators', 'room'] as const;
type Step = (typeof steps)[number];

/** A function of sound: the step fails for all sizes but 512, as ONNX Runtime does when a window is longer than it. */
function soundBench(step: Step, shape: readonly number[] = [1, -1]) {
  const tried: number[] = [];
  let registered: number | undefined;
  const failing = <Result>(at: Step, result: Result): Promise<Result> => {
    const isFailing = step === at && registered !== 512;
    if (!isFailing) return Promise.resolve(result);
    return Promise.reject(new GpuError(at === 'room' ? 'out-of-memory' : 'invalid', `Pad '/stft/Pad': ${registered}`));
  };
  const uncovered = [{ node: '/stft/Conv', operator: 'Conv', reason: 'its output is [0]' }];
  const client = {
    register: ({ shapes }: GpuFunctionSpec): Promise<GpuCoverage> => {
      if (registered !== undefined) throw new Error('it is registered already');
      registered = shapes[0]!.shape.at(-1)!;
      tried.push(registered);
      const isCovered = registered === 512 || (step !== 'uncovered' && step !== 'operators');
      const inPart = step === 'operators' ? { layers } : {};
      return failing('register', isCovered ? coverage : { covered: false, obstacles: uncovered, ...inPart });
    },
    unregister: () => ((registered = undefined), Promise.resolve()),
    evict: () => Promise.resolve(0),
    measure: () => failing('measure', measured).then(() => failing('room', measured)),
    measureOperators: () =>
      failing('operators', undefined).then(() => Promise.reject(new GpuError('invalid', 'Conv is not timed'))),
  } as unknown as GpuClient;
  const check: PrepareOptions['check'] = async () => {
    await failing('check', undefined);
    return { kind: 'agreed', inputs: 'drawn', precision: 'fp32', tolerance: 1e-3 };
  };
  const settings = { hybrid: 'memory', hybridCores: 1 } as const;
  const bench = gpuBench({ dataDir, client, functions: { check }, settings });
  const version = functionVersion('sound', {
    metadata: metadata([spec('audio', 'FP32', shape)], [spec('speech', 'FP32', [1, 1])]),
  });
  const state = () => bench.functions.record(version.key)?.state;
  const called = (samples: number): void => {
    const data = Buffer.alloc(4 * samples);
    bench.functions.calls.keepsOff(version.key, [{ name: 'audio', datatype: 'FP32', shape: [1, samples], data }]);
  };
  return { ...bench, version, tried, state, called };
}

test.each(steps)('a failure with guessed sizes waits for a call, whose sizes decide: %s', async (step) => {
  const { functions, runtime, store, version, tried, state, called, close } = soundBench(step);
  functions.up(runtime);
  store.put(version);
  await functions.settled();
  expect(state()).toMatchObject({
    kind: 'unsized',
    reason: expect.stringMatching(/^(Pad|Conv) .*guessed\)$/) as string,
  });
  const whyNot = whyNotOnGpu(functions.record(version.key)!, 0);
  expect(whyNot).toMatch(/^it waits for a call with other sizes.*: (Pad|Conv)/);
  called(100);
  await functions.settled();
  expect(state()).toMatchObject({ kind: 'unsized' });
  called(512);
  await functions.settled();
  expect(state()).toEqual({ kind: 'planned' });
  expect(tried.slice(1)).toEqual([100, 512]);
  await close();
});

test('calls that come before a function is registered give the sizes, and nothing is guessed', async () => {
  const { functions, runtime, store, version, tried, state, called, close } = soundBench('measure');
  store.put(version);
  called(100);
  called(512);
  functions.up(runtime);
  await functions.settled();
  expect(state()).toEqual({ kind: 'planned' });
  expect(tried).toEqual([512]);
  await close();
});

test('a call that comes while guessed sizes fail is tried at once', async () => {
  const { functions, runtime, store, version, tried, state, called, close } = soundBench('measure');
  functions.up(runtime);
  store.put(version);
  await new Promise<void>((resolve) => void setImmediate(resolve));
  expect(state()?.kind).not.toBe('unsized');
  called(512);
  await functions.settled();
  expect(state()).toEqual({ kind: 'planned' });
  expect(tried.at(-1)).toBe(512);
  await close();
});

test('with fixed sizes a failure is no guess and refuses the function, until an operator asks for it', async () => {
  const { functions, runtime, store, version, tried, state, close } = soundBench('measure', [1, 16]);
  functions.up(runtime);
  store.put(version);
  await functions.settled();
  expect(state()).toMatchObject({ kind: 'refused', reason: "Pad '/stft/Pad': 16" });
  functions.askFor(version.key);
  await functions.settled();
  expect(tried).toEqual([16, 16]);
  expect(state()).toMatchObject({ kind: 'refused' });
  await close();
});

test('a lack that is the same for all sizes refuses a function whose sizes are open', async () => {
  const obstacles = [
    { node: 'n', operator: 'Odd', reason: 'the engine has no such operator', isAnySize: true as const },
  ];
  const client = {
    register: () => Promise.resolve<GpuCoverage>({ covered: false, obstacles }),
    unregister: () => Promise.resolve(),
  } as unknown as GpuClient;
  const { functions, runtime, store, close } = gpuBench({ dataDir, client });
  functions.up(runtime);
  const version = functionVersion('odd', {
    metadata: metadata([spec('x', 'FP32', [-1, -1])], [spec('y', 'FP32', [-1, -1])]),
  });
  store.put(version);
  await functions.settled();
  expect(functions.record(version.key)?.state).toMatchObject({ kind: 'refused', until: 'another model' });
  await close();
});
