/** What becomes of functions when the GPU process ends between the steps of their registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeStore, functionVersion } from '../../../test/host/fakes.ts';
import { GpuError, type GpuClient, type GpuCoverage } from '../../gpu/index.ts';
import { loadMachine } from '../../hardware/index.ts';
import { policies } from '../../schedule/index.ts';
import { createLogger } from '../logger.ts';
import type { LadderKind } from './ladders.ts';
import { ProfileShelf } from './plan-book.ts';
import { Registrations, type GpuGround } from './registrations.ts';
import { GpuShell } from './shell.ts';
import type { GpuRunner } from './shell-types.ts';
import { ShippedPlans } from './shipped-plans.ts';

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'turntable-registrations-'));
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
  endBefore(call: string, registrations: Registrations, ground: GpuGround): void {
    this.#ended.set(call, () => {
      this.#known.clear();
      registrations.down();
      registrations.up(ground);
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

test.each<[call: string, ladder: { kind: LadderKind; cores: number }, calls: readonly string[]]>([
  ['measure', { kind: 'off', cores: 0 }, ['register', 'measure', 'register', 'measure']],
  ['operators', { kind: 'memory', cores: 1 }, ['register', 'measure', 'operators', 'register', 'operators']],
])(
  'a function that waits for its turn to be timed while the GPU process ends is registered with the next one: %s',
  async (call, ladder, calls) => {
    const processes = new Processes();
    const machine = loadMachine('p3.8xlarge');
    const shell = new GpuShell({
      gpus: machine.gpus.map((gpu) => ({
        capacityBytes: gpu.memoryBytes,
        switch: gpu.switch,
        linkGBps: gpu.linkGBps,
        uplinkGBps: 12,
      })),
      policy: policies.best,
      cpuCores: 2,
      runner: {} as GpuRunner,
      cpuOffer: () => ({ latencyMs: 100, cores: 1 }),
    });
    const store = new FakeStore();
    const registrations = new Registrations({
      client: processes.client,
      registry: store,
      logger: createLogger({ level: 'silent', format: 'json' }),
      dataDir,
      mode: 'dha',
      ladder,
      iterations: 1,
      shippedPlans: new ShippedPlans(join(dataDir, 'none')),
      whenIdle: () => Promise.resolve(),
      onPinned: () => undefined,
    });
    const ground = { machine, machineName: 'four V100', shelf: new ProfileShelf(dataDir, 'four V100'), shell };
    processes.endBefore(call, registrations, ground);
    registrations.up(ground);
    const version = functionVersion('waits');
    store.put(version);
    await registrations.settled();
    expect(processes.calls.filter((each) => each !== 'evict')).toEqual(calls);
    expect(registrations.standing(version.key)).toMatchObject({ status: 'planned', mode: 'dha' });
    expect(registrations.isPresent(version.key)).toBe(true);
    shell.close();
    await registrations.close();
  },
);
