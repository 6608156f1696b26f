/** What happens to functions when the GPU process ends between the steps of their registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { functionVersion, metadata, spec } from '../../../test/host/fake-store.ts';
import { gpuBench } from '../../../test/host/gpu-bench.ts';
import { GpuError, sizingOf, type GpuClient, type GpuCoverage, type GpuFunctionSpec } from '../../gpu/index.ts';
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

test('a function without a program for the values of four calls is refused with a sentence, and no more values are tried', async () => {
  const { functions, version, tried, stateAfter, close } = sizedBench();
  await functions.settled();
  expect(functions.record(version.key)?.state).toEqual(unsized);
  for (const size of [1, 2, 2, 1, 3]) expect(await stateAfter(size, 0)).toEqual(unsized);
  const refused = {
    kind: 'refused',
    until: 'another model',
    reason:
      "there was no program for 4 values of 'sizes', the last time because of Reshape (shaped): nothing has the shape 4,0",
  };
  expect(await stateAfter(4, 0)).toEqual(refused);
  expect(await stateAfter(3, 4)).toEqual(refused);
  expect(tried).toEqual(['1,0', '2,0', '3,0', '4,0']);
  await close();
});

test('a function for which three values had no program is planned for the fourth', async () => {
  const { functions, tried, stateAfter, close } = sizedBench();
  await functions.settled();
  for (const size of [1, 2, 3]) expect(await stateAfter(size, 0)).toEqual(unsized);
  expect(await stateAfter(3, 4)).toEqual({ kind: 'planned' });
  expect(tried).toEqual(['1,0', '2,0', '3,0', '3,4']);
  await close();
});
