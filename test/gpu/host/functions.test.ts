/** Which functions a GPU process gets, and which it never gets again, with a fake process. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { GpuError, type GpuCheck, type GpuErrorCode, type RunResult } from '../../../src/gpu/index.ts';
import { whyNotOnGpu } from '../../../src/host/gpu/function-state.ts';
import type { GpuFunctions, GpuFunctionsClient } from '../../../src/host/gpu/gpu-functions.ts';
import type { GpuRuntime } from '../../../src/host/gpu/prepare.ts';
import type { FunctionVersion } from '../../../src/host/types.ts';
import type { Tensor } from '../../../src/tensor/index.ts';
import { functionVersion, metadata, spec, type FakeStore } from '../../host/fake-store.ts';
import { gpuBench, type GpuBench } from './gpu-bench.ts';
import { shapeIn } from '../../../src/gpu/index.ts';

const weightBytes = 1000;
const agreed: GpuCheck = { kind: 'agreed', inputs: 'drawn', precision: 'fp32', tolerance: 1e-3 };
const unused = (): never => expect.fail('nothing runs here');

/** Answers in the next turn of the event loop, or dies with all its pending calls. */
class MadeUpProcess {
  readonly asked: string[] = [];
  readonly registered = new Set<string>();
  readonly #inHand = new Map<string, (error?: GpuError) => void>();
  /** Whether the process dies over these functions. */
  endsOver: (keys: readonly string[]) => boolean = () => false;
  /** Until its first death it answers only so many at once. */
  togetherMin = 1;
  measureFailure: GpuErrorCode | undefined;
  onMeasure: (key: string) => void = () => undefined;
  onEnd: () => void = () => undefined;
  deaths = 0;
  /** Results of comparisons; by default they agree. */
  readonly found = new Map<string, (inputs: readonly Tensor[] | undefined) => GpuCheck>();
  readonly checked: string[] = [];
  /** Shapes for which there is no program. */
  readonly impossible = new Set<string>();
  readonly prepared: string[] = [];
  /** Resolves when a program may be made. */
  compiler: Promise<void> = Promise.resolve();
  /** Resolves when a comparison may end. */
  comparison: Promise<void> = Promise.resolve();

  async check(key: string, inputs: readonly Tensor[] | undefined): Promise<GpuCheck> {
    this.checked.push(inputs === undefined ? key : `${key} with a call's`);
    await this.comparison;
    return this.found.get(key)?.(inputs) ?? agreed;
  }

  readonly client: GpuFunctionsClient = {
    register: async ({ key }) => {
      await this.#work(key);
      this.#add(key);
      const layers = [{ name: `layer of ${key}`, kind: 'linear' as const, bytes: weightBytes }];
      return { covered: true, layers, weightBytes, launches: 1 };
    },
    registerAgain: async (key) => {
      await this.#work(key);
      this.#add(key);
    },
    unregister: (key) => Promise.resolve(void this.registered.delete(key)),
    measure: (key) => {
      this.onMeasure(key);
      if (!this.registered.has(key)) return Promise.reject(new GpuError('unknown-function', `who is ${key}?`));
      if (this.measureFailure !== undefined) return Promise.reject(new GpuError(this.measureFailure, 'no'));
      const cost = { load: 1, exec: 1, dha: 2, bytes: weightBytes };
      const layers = [{ name: `layer of ${key}`, kind: 'linear' as const, dhaReadBytes: weightBytes, ...cost }];
      const spread = { medianMs: 1, minMs: 1, maxMs: 1 };
      return Promise.resolve({ unit: 'ms', layers, gpu: 'made up', iterations: 1, spread: [], warm: spread } as never);
    },
    evict: () => Promise.resolve(0),
    prepare: async (_key, { shapes }) => {
      const shape = `[${shapeIn(shapes, 'x')!.join(',')}]`;
      this.prepared.push(shape);
      await this.compiler;
      if (this.impossible.has(shape)) return { covered: false, reason: 'it is too long', obstacles: [] };
      return { covered: true };
    },
    measureOperators: unused,
    addPlan: unused,
    dropPlan: unused,
    run: unused,
  };

  #add(key: string): void {
    if (this.registered.has(key)) throw new GpuError('invalid', `${key} is registered already`);
    this.registered.add(key);
  }

  #work(key: string): Promise<void> {
    this.asked.push(key);
    if (this.#inHand.size === 0) setImmediate(() => this.#answer());
    return new Promise((resolve, reject) => {
      this.#inHand.set(key, (error) => (error === undefined ? resolve() : reject(error)));
    });
  }

  #answer(): void {
    if (this.deaths === 0 && this.#inHand.size < this.togetherMin) {
      setImmediate(() => this.#answer());
      return;
    }
    if (this.endsOver([...this.#inHand.keys()])) this.end();
    const all = [...this.#inHand.values()];
    this.#inHand.clear();
    for (const resolve of all) resolve();
  }

  end(): void {
    this.deaths++;
    this.registered.clear();
    this.onEnd();
    const all = [...this.#inHand.values()];
    this.#inHand.clear();
    for (const reject of all) reject(new GpuError('died', 'it was ended'));
  }
}

let folder: string;
let bench: GpuBench;
let store: FakeStore;
let made: MadeUpProcess;
let functions: GpuFunctions;
let ground: GpuRuntime;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-functions-'));
  made = new MadeUpProcess();
  const timings = { waitMs: 0, gpuMs: 1, totalMs: 1 };
  const run = (): Promise<RunResult> =>
    Promise.resolve({ outputs: [], start: 'warm', loadedBytes: 0, fromDisk: false, graph: false, timings });
  const runner = { run, load: unused, trim: () => Promise.resolve(0), release: () => Promise.resolve(0), keep: unused };
  bench = gpuBench({
    dataDir: folder,
    client: made.client,
    capacityBytes: 10_000,
    runner,
    cpuLatencyMs: 1000,
    settings: { mode: 'pipeswitch' },
    functions: { check: (key, { inputs: given }) => made.check(key, given) },
  });
  ({ functions, store, runtime: ground } = bench);
  made.onEnd = () => {
    functions.down('it was ended');
    setImmediate(() => functions.up(ground));
  };
});
afterEach(async () => {
  await bench.close();
  await rm(folder, { recursive: true, force: true });
});

function publish(name: string, pinned = false): FunctionVersion {
  const version = functionVersion(name, {
    modelPath: `/nowhere/${name}.onnx`,
    modelSha256: name,
    metadata: metadata([spec('x', 'FP32', [-1, 4])], [spec('y', 'FP32', [-1, 4])]),
  });
  const published = { ...version, settings: { ...version.settings, pinned } };
  store.put(published);
  return published;
}

const statusOf = (name: string): string | undefined => functions.record(`${name}@1`)?.state.kind;
const statuses = (names: readonly string[]): (string | undefined)[] => names.map(statusOf);

test('only the function that ends the process is refused, not those registering beside it', async () => {
  made.endsOver = (keys) => keys.includes('poison@1');
  const names = ['a', 'b', 'poison', 'c', 'd', 'e'];
  for (const name of names) publish(name);
  functions.up(ground);
  await functions.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'refused', 'planned', 'planned', 'planned']);
  expect(names.filter((name) => ground.scheduler.has(`${name}@1`))).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect(made.deaths).toBe(4);
});

test('a process that dies for other reasons while several functions register costs none of them its place', async () => {
  made.endsOver = () => made.deaths < 3;
  made.togetherMin = 2;
  const names = ['a', 'b', 'c', 'd'];
  for (const name of names) publish(name);
  functions.up(ground);
  await functions.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'planned', 'planned']);
});

test('a function that ends each process in which it registers again is refused, and the others stay', async () => {
  const names = ['a', 'b', 'late'];
  for (const name of names) publish(name);
  functions.up(ground);
  await functions.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'planned']);
  made.endsOver = (keys) => keys.includes('late@1');
  made.end();
  while (statusOf('late') !== 'refused') await new Promise(setImmediate);
  await functions.settled();
  expect(statuses(names)).toEqual(['planned', 'planned', 'refused']);
  expect(['a', 'b', 'late'].filter((name) => ground.scheduler.has(`${name}@1`))).toEqual(['a', 'b']);
});

test('functions of the last process are registered with the new one', async () => {
  made.onEnd = () => {
    functions.down('it was ended');
    functions.up(ground);
  };
  made.onMeasure = () => {
    if (made.deaths === 0) made.end();
  };
  publish('a');
  functions.up(ground);
  await functions.settled();
  expect(statusOf('a')).toBe('planned');
});

test('a function that had no room for its measurement beside pinned ones is measured when a pin is removed', async () => {
  const pinned = publish('pinned', true);
  functions.up(ground);
  await functions.settled();
  made.measureFailure = 'out-of-memory';
  publish('late');
  await functions.settled();
  expect(functions.record('late@1')?.state).toMatchObject({ kind: 'unsized', isOfRoom: true });
  expect(whyNot('late')).toBe('it waits for a call with other sizes, or for a pin to go: no (the sizes were guessed)');
  expect(made.registered).toEqual(new Set(['pinned@1']));
  made.measureFailure = undefined;
  store.put({ ...pinned, settings: { ...pinned.settings, pinned: false } });
  await functions.settled();
  expect(statuses(['pinned', 'late'])).toEqual(['planned', 'planned']);
});

test('a function that waits for room is measured when the pinned one is removed', async () => {
  publish('pinned', true);
  functions.up(ground);
  await functions.settled();
  made.measureFailure = 'out-of-memory';
  publish('late');
  await functions.settled();
  expect(statusOf('late')).toBe('unsized');
  made.measureFailure = undefined;
  await store.remove('pinned', undefined);
  await functions.settled();
  expect(statusOf('late')).toBe('planned');
});

const inputs = (rows: number): Tensor[] => [
  { name: 'x', datatype: 'FP32', shape: [rows, 4], data: new Uint8Array(16 * rows) },
];
const whyNot = (name: string): string | undefined => {
  const record = functions.record(`${name}@1`);
  return record && whyNotOnGpu(record, 0);
};
const differs: GpuCheck = { kind: 'disagreed', output: 'y', why: 'element 0 is 1 on the GPU', precision: 'fp32' };

test('a function whose answer differs never gets a GPU, also after a restart, and says why', async () => {
  made.found.set('wrong@1', () => differs);
  for (const name of ['wrong', 'right']) publish(name);
  functions.up(ground);
  await functions.settled();
  expect(statuses(['wrong', 'right'])).toEqual(['disagreed', 'planned']);
  expect(whyNot('wrong')).toBe("its answer differs from that of ONNX Runtime: output 'y': element 0 is 1 on the GPU");
  expect(ground.scheduler.has('wrong@1')).toBe(false);
  expect(made.registered).toEqual(new Set(['right@1']));
  made.found.clear();
  for (const name of ['wrong', 'right']) await store.remove(name, undefined);
  for (const name of ['wrong', 'right']) publish(name);
  await functions.settled();
  expect(statuses(['wrong', 'right'])).toEqual(['disagreed', 'planned']);
  // The verdicts are on disk.
  expect(made.checked.toSorted()).toEqual(['right@1', 'wrong@1']);
});

test('a function whose inputs cannot be drawn stays off the GPUs until the inputs of a call have decided', async () => {
  const undecided: GpuCheck = { kind: 'undecided', why: 'indices are out of bounds' };
  made.found.set('gather@1', (given) => (given === undefined ? undecided : agreed));
  made.found.set('wrong@1', (given) => (given === undefined ? undecided : differs));
  for (const name of ['gather', 'wrong']) publish(name);
  functions.up(ground);
  await functions.settled();
  expect(statuses(['gather', 'wrong'])).toEqual(['undecided', 'undecided']);
  expect(whyNot('gather')).toMatch(/^the inputs of a call decide .*: indices are out of bounds$/);
  expect(ground.scheduler.has('gather@1')).toBe(false);
  for (const name of ['gather', 'wrong']) functions.calls.keepsOff(`${name}@1`, inputs(3));
  await functions.settled();
  expect(statuses(['gather', 'wrong'])).toEqual(['planned', 'disagreed']);
  expect(functions.calls.keepsOff('gather@1', inputs(3))).toBeUndefined();
  expect(functions.calls.shapesOf('gather@1')).toEqual([{ name: 'x', shape: [3, 4] }]);
});

test('calls that decide nothing are compared ever more rarely', async () => {
  made.found.set('blank@1', () => ({ kind: 'undecided', why: 'too small to tell' }));
  publish('blank');
  functions.up(ground);
  await functions.settled();
  const drawn = made.checked.length;
  for (let call = 1; call <= 10; call++) {
    functions.calls.keepsOff('blank@1', inputs(3));
    await functions.settled();
  }
  // At the calls 1, 2, 4 and 8.
  expect(made.checked.length - drawn).toBe(4);
  expect(statuses(['blank'])).toEqual(['undecided']);
});

test('inputs of new shapes go elsewhere until their program is made and compared, and a refusal is only for those shapes', async () => {
  publish('a');
  functions.up(ground);
  await functions.settled();
  const own = shapeIn(functions.calls.shapesOf('a@1')!, 'x')![0]!;
  expect(functions.calls.keepsOff('a@1', inputs(own))).toBeUndefined();
  let compiled!: () => void;
  made.compiler = new Promise((resolve) => (compiled = resolve));
  expect(functions.calls.keepsOff('a@1', inputs(5))?.words).toBe('its program for inputs of x[5,4] is not there yet');
  await vi.waitUntil(() => made.prepared.length === 1);
  expect(functions.calls.keepsOff('a@1', inputs(5))?.words).toBe('its program for inputs of x[5,4] is being prepared');
  expect(functions.calls.keepsOff('a@1', inputs(own))).toBeUndefined();
  compiled();
  await functions.settled();
  expect(functions.calls.keepsOff('a@1', inputs(5))).toBeUndefined();
  expect(made.checked.at(-1)).toBe("a@1 with a call's");
  made.impossible.add('[6,4]');
  functions.calls.keepsOff('a@1', inputs(6));
  await functions.settled();
  expect(functions.calls.keepsOff('a@1', inputs(6))).toEqual({
    reason: 'shape-refused',
    words: 'not for inputs of x[6,4]: it is too long',
  });
  expect([own, 5].map((rows) => functions.calls.keepsOff('a@1', inputs(rows)))).toEqual([undefined, undefined]);
  expect(made.prepared).toEqual(['[5,4]', '[6,4]']);
  expect(statusOf('a')).toBe('planned');
});

test('no call waits for a comparison that does not end: it goes elsewhere at once, and to the GPU in shapes that have agreed', async () => {
  publish('served');
  functions.up(ground);
  await functions.settled();
  const own = shapeIn(functions.calls.shapesOf('served@1')!, 'x')![0]!;
  let compared!: () => void;
  made.comparison = new Promise((resolve) => (compared = resolve));
  publish('new');
  expect(functions.calls.keepsOff('served@1', inputs(5))?.words).toMatch(/is not there yet$/);
  await vi.waitUntil(() => made.checked.length === 3);
  expect(ground.scheduler.has('new@1')).toBe(false);
  expect(statuses(['served', 'new'])).toEqual(['planned', 'checking']);
  expect(functions.calls.keepsOff('served@1', inputs(5))?.words).toMatch(/is being prepared$/);
  expect(functions.calls.keepsOff('served@1', inputs(own))).toBeUndefined();
  compared();
  await functions.settled();
  expect(statuses(['served', 'new'])).toEqual(['planned', 'planned']);
  expect(functions.calls.keepsOff('served@1', inputs(5))).toBeUndefined();
});

test('a function that answers wrongly for new shapes, or in a later check, is taken off the GPUs', async () => {
  for (const name of ['shapes', 'later']) publish(name);
  functions.up(ground);
  await functions.settled();
  for (const key of ['shapes@1', 'later@1']) made.found.set(key, () => differs);
  functions.calls.keepsOff('shapes@1', inputs(5));
  await functions.calls.recheck({ key: 'later@1', inputs: inputs(16), outputs: [] });
  await functions.settled();
  expect(statuses(['shapes', 'later'])).toEqual(['disagreed', 'disagreed']);
  expect(['shapes@1', 'later@1'].filter((key) => ground.scheduler.has(key))).toEqual([]);
  expect(made.registered).toEqual(new Set());
});
