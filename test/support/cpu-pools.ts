/** Common parts of tests of CPU pools: limits, memory for a number of models, inputs, and outputs. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import {
  createCpuPools,
  type CpuPools,
  type CpuPoolsOptions,
  type InstanceSpec,
  type InvokeOptions,
  type PoolInput,
  type PoolLimits,
  type PoolResult,
} from '../../src/cpu/index.ts';
import { LiveCpu, LiveScheduler } from '../../src/live/index.ts';
import { policies } from '../../src/schedule/index.ts';
import { elements, tensorOf } from '../../src/tensor/index.ts';
import { waitLimitMs } from '../time-limits.ts';
import { writeReluModel } from './models.ts';

export const poolLimits: PoolLimits = {
  instancesMin: 0,
  instancesMax: 2,
  batchMax: 1,
  batchDelayMs: 0,
  idleMs: 3_600_000,
  handlerTimeoutMs: waitLimitMs,
  loadTimeoutMs: waitLimitMs,
  inferTimeoutMs: waitLimitMs,
};

/** Declared size of a model for tests of how many fit: such a model has its own processes. */
export const largeBytes = 100 * 2 ** 20;

/** Memory for this many of them by their declared size, whatever they really take. */
export function roomFor(instances: number): Partial<CpuPoolsOptions> {
  const processBytes = 32 * 2 ** 20;
  return {
    blankInstances: 0,
    memoryBytes: instances * (1.3 * largeBytes + processBytes) + 1,
    measureProcess: () => Promise.resolve(undefined),
  };
}

/** Rows of four numbers, for the model of `writeReluModel`. */
export function rowsOfFour(...values: number[]): PoolInput {
  const shape = [values.length / 4, 4];
  return { kind: 'tensors', tensors: [tensorOf('x', 'FP32', shape, Float32Array.from(values))] };
}

/** For a handler. */
export const requestOf = (body: string): PoolInput => ({
  kind: 'request',
  request: { method: 'POST', url: '/', headers: {}, body: Buffer.from(body) },
});

export function valuesOf({ output }: PoolResult): number[] {
  if (output.kind !== 'tensors') throw new Error('not tensors');
  const [tensor] = output.tensors;
  return tensor === undefined ? [] : Array.from(elements(tensor) as Float32Array);
}

/** The body of a handler's reply. */
export const bodyOf = ({ output }: PoolResult): string =>
  output.kind === 'response' ? Buffer.from(output.response.body).toString() : 'tensors';

/** Takes text such as `1,2,3,4` to the model and answers with the outputs joined the same way. */
export const textHandler = `
export function preprocess(request) {
  const data = request.text().split(',').map(Number);
  if (data.some(Number.isNaN)) throw Object.assign(new Error('that is not a list of numbers'), { status: 400 });
  return [{ name: 'x', datatype: 'FP32', shape: [1, data.length], data }];
}
export function postprocess(tensors) { return Array.from(tensors[0].data).join(','); }`;

/** Pools behind a scheduler that has no other place, as a worker has them: it decides who runs, and whose session goes. */
export class ScheduledPools {
  readonly pools: CpuPools;
  readonly #cpu: LiveCpu;
  readonly #live: LiveScheduler;
  readonly #specs = new Map<string, InstanceSpec>();

  constructor(options: Partial<CpuPoolsOptions>) {
    const settings = { sloMs: waitLimitMs, priority: 1 };
    this.#cpu = new LiveCpu({
      cores: 2,
      blankInstances: 0,
      memoryBytes: 4e9,
      log: () => undefined,
      ...options,
      needOf: (key) => {
        const spec = this.#specs.get(key);
        const { threads, modelBytes = 0 } = spec ?? { threads: 1 };
        return spec && { settings, threads, modelBytes, latencyMs: undefined };
      },
    });
    this.#live = new LiveScheduler({ ...this.#cpu.asPlace, policy: policies.best });
    this.#cpu.join(this.#live);
    this.pools = this.#cpu.pools;
  }

  register(spec: InstanceSpec, limits: PoolLimits): void {
    this.#specs.set(spec.key, spec);
    this.pools.register(spec, limits);
  }

  makeSession(key: string): Promise<{ readonly bytes: number; readonly spares: number }> {
    return this.#cpu.asPlace.makeSession!(key);
  }

  invoke(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<PoolResult> {
    const settings = { sloMs: waitLimitMs, priority: 1 };
    const { signal, deadlineMs, priority } = options;
    return this.#cpu.run({ key, settings }, input, { signal, deadlineMs, priority }, options);
  }
}

/** A folder with the model of `writeReluModel` for the tests of a file, and the pools of one test at a time. */
export class TestPools {
  folder = '';
  reluPath = '';
  #pools: CpuPools | undefined;

  /** Called at the top of a test file. */
  constructor() {
    beforeAll(async () => {
      this.folder = await mkdtemp(join(tmpdir(), 'turntable-pools-'));
      this.reluPath = await writeReluModel(this.folder);
    });
    afterAll(() => rm(this.folder, { recursive: true, force: true }));
    afterEach(() => this.#pools?.stop(0));
  }

  start(options: Partial<CpuPoolsOptions> = {}): CpuPools {
    this.#pools = createCpuPools({ cores: 2, blankInstances: 0, memoryBytes: 4e9, log: () => undefined, ...options });
    return this.#pools;
  }

  startScheduled(options: Partial<CpuPoolsOptions> = {}): ScheduledPools {
    const scheduled = new ScheduledPools(options);
    this.#pools = scheduled.pools;
    return scheduled;
  }

  spec(key: string, overrides: Partial<InstanceSpec> = {}): InstanceSpec {
    return { key, modelPath: this.reluPath, threads: 1, ...overrides };
  }

  async handler(name: string, source: string): Promise<string> {
    const path = join(this.folder, `${name}.mjs`);
    await writeFile(path, source);
    return path;
  }

  busyPid(key: string): number | undefined {
    return this.#pools?.state(key)?.instances.find(({ state }) => state === 'busy')?.pid;
  }

  pidsOf(key: string): number[] {
    return this.#pools?.state(key)?.instances.map(({ pid }) => pid) ?? [];
  }
}
