/** What becomes of functions when the GPU process ends between the steps of their registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fakes.ts';
import { gpuBench } from '../../../test/host/gpu-bench.ts';
import { GpuError, type GpuClient, type GpuCoverage } from '../../gpu/index.ts';
import type { VariantKind } from './variants/index.ts';
import type { GpuFunctions } from './gpu-functions.ts';
import type { GpuRuntime } from './prepare.ts';

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
  arenaBytes: 0,
  workspaceBytes: 0,
  launches: 1,
};
const measured = { unit: 'ms', layers: [{ ...layers[0]!, load: 1, exec: 1, dha: 2 }] };

/** A client of processes that can be ended, of which each knows what was registered with it. */
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

test.each<[call: string, variants: { kind: VariantKind; cores: number }, calls: readonly string[]]>([
  ['measure', { kind: 'off', cores: 0 }, ['register', 'measure', 'register', 'measure']],
  ['operators', { kind: 'memory', cores: 1 }, ['register', 'measure', 'operators', 'register', 'operators']],
])(
  'a function that waits for its turn to be timed while the GPU process ends is registered with the next one: %s',
  async (call, variants, calls) => {
    const processes = new Processes();
    const { functions, runtime, store, close } = gpuBench({
      dataDir,
      client: processes.client,
      functions: { variants },
    });
    processes.endBefore(call, functions, runtime);
    functions.up(runtime);
    const version = functionVersion('waits');
    store.put(version);
    await functions.settled();
    expect(processes.calls.filter((each) => each !== 'evict')).toEqual(calls);
    expect(functions.record(version.key)).toMatchObject({ state: { kind: 'planned' }, plan: { mode: 'dha' } });
    await close();
  },
);
