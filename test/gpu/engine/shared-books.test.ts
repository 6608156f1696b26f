/**
 * Runs 200 functions, of which 60% share layers, on the live scheduler and the GPU process's service over the emulated
 * driver. Loads, evictions, removals, resizes of host memory and kills of the process come in random order. Each
 * answer must be that of a function that shares nothing, and after each step the scheduler must count the bytes that
 * the engine has.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { timingsOf } from '../../../src/gpu/process/protocol.ts';
import { GpuService } from '../../../src/gpu/process/service.ts';
import { layerIds } from '../../../src/gpu/program/layer-ids.ts';
import { GpuError, type GpuRunOptions, type LoadResult, type RunResult, type Staged } from '../../../src/gpu/index.ts';
import { LiveScheduler, type FunctionPlans, type GpuRunner, type HostRunner } from '../../../src/live/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import { owned, type Tensor } from '../../../src/tensor/index.ts';
import type { CancelSignal } from '../../../src/tools/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { gpuOnly } from '../../support/gpu-shell.ts';
import { gpuOffer } from '../../support/offers.ts';
import { makeChain, planFor, wordsOf, type Chain } from './chains.ts';
import { draws } from '../../support/draws.ts';

const functionCount = 200;
const gpuCount = 2;
const kibibyte = 1024;
const gpuBytes = 80 * kibibyte;
const hostBytes = 300 * kibibyte;
const steps = 22;
const settings = { sloMs: 60_000, priority: 100 };

interface Published {
  readonly chain: Chain;
  readonly plans: FunctionPlans;
  readonly ids: readonly string[];
}

type Methods = GpuService['methods'];

/** Makes an AbortSignal of a caller's signal, as the GPU process does for a message. */
function signalOf(cancel: CancelSignal | undefined): AbortSignal {
  const abort = new AbortController();
  cancel?.addEventListener('abort', () => abort.abort());
  return abort.signal;
}

/** A GPU process that can be killed: its open calls fail at once, and the next process knows no function. */
class Processes implements GpuRunner, HostRunner {
  readonly #cuda: Cuda;
  readonly #functions: ReadonlyMap<string, Published>;
  readonly #openCalls = new Set<Promise<unknown>>();
  #service: GpuService;
  /** Aborted when the process ends. */
  #life = new AbortController();
  #hostBytes = hostBytes;

  constructor(cuda: Cuda, functions: ReadonlyMap<string, Published>) {
    this.#cuda = cuda;
    this.#functions = functions;
    this.#service = this.#start();
  }

  #start(): GpuService {
    const make = (what: string, order: { readonly modelPath?: string; readonly layout?: unknown }): unknown => {
      const all = [...this.#functions.values()];
      if (what === 'ids') return Promise.resolve(all.find(({ chain }) => chain.program.layout === order.layout)!.ids);
      return Promise.resolve(this.#functions.get(order.modelPath!)!.chain.program);
    };
    const compiler = { make: make as never, close: () => Promise.resolve() };
    const memory = { hostBytes: this.#hostBytes, slabBytes: 64 * kibibyte, gpuBytes: gpuBytes + 32 * kibibyte };
    return new GpuService(this.#cuda, compiler, { ...memory, cacheFolder: '' }, new Set());
  }

  async kill(): Promise<void> {
    this.#life.abort();
    await this.#service.close();
    this.#life = new AbortController();
    this.#service = this.#start();
  }

  async close(): Promise<void> {
    await this.#service.close();
  }

  #call<Answer>(work: () => Promise<Answer>): Promise<Answer> {
    const { signal } = this.#life;
    const died = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(new GpuError('died', 'the GPU process died')), { once: true });
    });
    const answer = Promise.race([work(), died]);
    const settled = answer.catch(() => undefined).then(() => void this.#openCalls.delete(settled));
    this.#openCalls.add(settled);
    return answer;
  }

  #callMethod(name: keyof Methods, order: unknown, signal = new AbortController().signal): Promise<never> {
    const { methods } = this.#service;
    const context = { tensors: [], signal, note: () => undefined };
    return this.#call(
      async () => await (methods[name] as (...parameters: unknown[]) => Promise<never>)(order, context),
    );
  }

  /** Resolves when no call is open, and the answers have caused no further calls. */
  async quiet(): Promise<void> {
    while (this.#openCalls.size > 0) {
      await Promise.all(this.#openCalls);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  register(key: string): Promise<unknown> {
    return this.#callMethod('register', { spec: { key, modelPath: key, shapes: [{ name: 'x', shape: [32] }] } });
  }
  unregister(key: string): Promise<void> {
    return this.#callMethod('unregister', { key });
  }
  run(key: string, inputs: readonly Tensor[], options: GpuRunOptions): Promise<RunResult> {
    const { gpu, plan, signal, onLaneFree } = options;
    const order = { key, gpu, plan: { place: 0, plan }, trace: false, notes: onLaneFree !== undefined };
    const context = { tensors: inputs, signal: signalOf(signal), note: onLaneFree ?? ((): void => undefined) };
    return this.#call(async () => {
      const {
        answer,
        tensors,
        sent: release = (): void => undefined,
      } = await this.#service.methods.run(order, context);
      const copies = owned({ header: {}, tensors, release }).tensors;
      return { ...answer, outputs: copies.slice(0, -1), timings: timingsOf(copies.at(-1)!) };
    });
  }
  load(key: string, { gpu, plan, signal }: Omit<GpuRunOptions, 'trace'>): Promise<LoadResult> {
    return this.#callMethod('load', { key, gpu, plan }, signalOf(signal));
  }
  trim(key: string, gpu: number, layers: number): Promise<number> {
    return this.#callMethod('trim', { key, gpu, layers });
  }
  release(key: string, gpu: number, layers: readonly number[]): Promise<number> {
    return this.#callMethod('release', { key, gpu, layers });
  }
  keep(key: string): Promise<number> {
    throw new Error(`${key} has one plan`);
  }
  stage(key: string, layers: readonly number[]): Promise<Staged> {
    return this.#callMethod('stage', { key, layers });
  }
  drop(key: string, layers: readonly number[], ofAll: boolean): Promise<number> {
    return this.#callMethod('drop', { key, layers, ofAll });
  }
  async resizeHost(bytes: number): Promise<void> {
    this.#hostBytes = bytes;
    await this.#callMethod('resizeHost', { hostBytes: bytes });
  }

  books() {
    const { memory, host } = this.#service.methods.state(undefined, undefined as never) as Awaited<
      ReturnType<Methods['state']>
    >;
    return { gpus: memory.map(({ weightBytes }) => weightBytes), host: host.usedBytes };
  }
}

/**
 * The layers of function number `index`: three of five functions share their first four layers, or all, with others.
 */
function shapeOf(index: number, random: Xoshiro) {
  const family = index % 5 < 3 ? index % 8 : undefined;
  if (family === undefined)
    return { layerWords: [400, 0, 256, 300 + random.below(500), 100 + random.below(50)], executed: random.below(3) };
  const layerWords = [500 + 64 * family, 256, 0, 700, 150];
  return { layerWords, shares: { base: `base ${family}`, layers: family < 6 ? 4 : 5 }, executed: family % 3 };
}

class Scene {
  readonly live: LiveScheduler;
  readonly processes: Processes;
  readonly defects: string[] = [];
  readonly keys: string[] = [];
  /** Number of calls by how they started (`warm`, `cold`, ...), or by the error with which they failed. */
  readonly starts = new Map<string, number>();
  readonly #published = new Map<string, Published>();
  readonly #folder: string;
  readonly #random: Xoshiro;
  #made = 0;
  #isKilling = false;

  constructor(cuda: Cuda, folder: string, random: Xoshiro) {
    this.#folder = folder;
    this.#random = random;
    this.processes = new Processes(cuda, this.#published);
    this.live = new LiveScheduler({
      policy: gpuOnly,
      cpu: { cores: 4, memoryBytes: Infinity },
      waitingMax: Infinity,
      cpuOffer: () => ({ latencyMs: 50, cores: 1 }),
      onDefect: (message) => this.defects.push(message),
    });
    const gpu = { capacityBytes: gpuBytes, switch: 0, linkGBps: 1, uplinkGBps: 2 };
    this.live.setGpus(
      Array.from({ length: gpuCount }, () => gpu),
      this.processes,
      {
        capacityBytes: hostBytes,
        diskGBps: 1,
        runner: this.processes,
      },
    );
  }

  async publish(index: number): Promise<void> {
    const key = `f${this.#made++}@1`;
    const { executed, ...shape } = shapeOf(index, this.#random);
    const made = makeChain({ folder: this.#folder, name: key, ...shape });
    // Equal graphs have equal programs.
    const chain = { ...made, program: { ...made.program, key: shape.layerWords.join() } };
    const { layout } = chain.program;
    const fromHost = (layer: number): boolean => executed > 0 && layer === executed + 1;
    const planOf = (primary: number) => planFor(chain, { mode: 'dha', primary, fromHost });
    const loaded = planOf(0).layers.flatMap(({ method }, layer) =>
      method === 'load' ? [layout.layers[layer]!.bytes] : [],
    );
    const offers = Array.from({ length: gpuCount }, (_, gpu) =>
      gpuOffer(gpu, { layers: loaded, warmMs: 0.1, msPerByte: 1e-6 }),
    );
    const plans: FunctionPlans = { mode: 'dha', isTooLarge: false, offers, planOf };
    this.#published.set(key, { chain, plans, ids: await layerIds(layout, join(this.#folder, 'cache')) });
    this.keys[index] = key;
    await this.#register(key);
  }

  async #register(key: string): Promise<void> {
    const { chain, plans, ids } = this.#published.get(key)!;
    await this.processes.register(key).catch(unlessItDied);
    if (this.#isKilling) return;
    const layers = chain.program.layout.layers.map(({ bytes }, layer) => ({ bytes, id: ids[layer]! }));
    this.live.functions.registered({ key, settings }, layers);
    this.live.functions.offer({ key, settings }, plans, false);
  }

  async remove(index: number): Promise<void> {
    const key = this.keys[index]!;
    await this.live.functions.remove(key);
    await this.processes.unregister(key).catch(unlessItDied);
    this.#published.delete(key);
  }

  async call(index: number): Promise<void> {
    const key = this.keys[index]!;
    const { chain } = this.#published.get(key)!;
    const placed = await this.live.submit({ key, settings }, [chain.input]).catch((error: unknown) => error as Error);
    const count = (start: string): void => void this.starts.set(start, (this.starts.get(start) ?? 0) + 1);
    if (placed instanceof Error) count(placed.message);
    else if (placed.kind === 'cpu') placed.done({ runMs: 1 });
    if (placed instanceof Error || placed.kind !== 'gpu') return;
    count(placed.start);
    const found = wordsOf(placed.result.outputs);
    if (!found.every((word, at) => word === chain.expected[at])) this.defects.push(`${key} answered ${found.join()}`);
  }

  async kill(): Promise<void> {
    if (this.#isKilling) return;
    this.#isKilling = true;
    const killed = this.processes.kill();
    this.live.lost();
    await killed;
    this.#isKilling = false;
    this.live.back();
    for (const key of this.#published.keys()) await this.#register(key);
  }

  async hold(index: number): Promise<void> {
    const hold = await this.live.holdInHost(this.keys[index]!).catch(() => undefined);
    await new Promise((resolve) => setImmediate(resolve));
    if (typeof hold === 'object') hold[Symbol.dispose]();
  }

  async resize(bytes: number): Promise<void> {
    this.live.resizeHost(bytes);
    await this.processes.resizeHost(bytes).catch(unlessItDied);
  }

  /**
   * Empties an idle GPU, first for one function: only layers that others share with it may stay. Then for a stranger:
   * none may.
   */
  async clear(gpu: number, index: number): Promise<void> {
    const key = this.keys[index]!;
    const { bytes } = this.#published.get(key)!.chain.program.layout;
    await this.live.freeBytes(gpu, key, gpuBytes);
    await this.processes.quiet();
    const left = this.live.residentBytes(gpu);
    // A twin of the function shares all of its layers, so up to that many bytes may stay.
    if (left > bytes) this.defects.push(`${left} bytes stay on GPU ${gpu} for ${key}, whose layers have ${bytes}`);
    await this.live.freeBytes(gpu, 'a stranger', gpuBytes);
    if (this.live.residentBytes(gpu) > 0) this.defects.push(`${this.live.residentBytes(gpu)} bytes stay on GPU ${gpu}`);
  }

  /** Starts a random operation; several run at once. */
  startRandom(): Promise<void> {
    const random = this.#random;
    const index = Math.floor(functionCount * (random.below(1000) / 1000) ** 2);
    switch (random.below(20)) {
      case 0:
        return this.live.functions.unload(this.keys[index]!);
      case 1:
        return this.hold(index);
      case 2:
        return this.resize(hostBytes - random.below(3) * 64 * kibibyte);
      default:
        return this.call(index);
    }
  }

  books() {
    const gpus = Array.from({ length: gpuCount }, (_, gpu) => this.live.residentBytes(gpu));
    return { gpus, host: this.live.hostBytes };
  }
}

function unlessItDied(error: unknown): void {
  if (!(error instanceof GpuError) || error.code !== 'died') throw error;
}

describe.skipIf(emulatorMissing)('functions that share layers', () => {
  const use = sharedEmulatedCuda({ devices: Array.from({ length: gpuCount }, () => ({ memoryBytes: 2 ** 20 })) });

  test('the scheduler counts the bytes that the engine has after any operations, and all answers are right', async () => {
    const starts = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 2 ** 30 }), async (seed) => {
        const folder = mkdtempSync(join(tmpdir(), 'turntable-books-'));
        try {
          await use(async (cuda) => {
            const random = new Xoshiro(seed);
            const scene = new Scene(cuda, folder, random);
            for (let index = 0; index < functionCount; index++) await scene.publish(index);
            for (let step = 0; step < steps; step++) {
              const operations = Array.from({ length: 1 + random.below(12) }, () => scene.startRandom());
              if (step % 7 === 6) operations.push(scene.kill());
              await Promise.all(operations);
              if (step % 3 === 1) {
                const index = random.below(functionCount);
                const calls = [scene.call(index), scene.call(random.below(functionCount))];
                await Promise.all([scene.remove(index), ...calls]);
                await scene.publish(index);
              }
              await scene.processes.quiet();
              if (step % 5 === 4) await scene.clear(step % gpuCount, random.below(functionCount));
              expect(scene.defects).toEqual([]);
              expect([step, scene.processes.books()]).toEqual([step, scene.books()]);
            }
            for (const start of scene.starts.keys()) starts.add(start);
            scene.live.close();
            await scene.processes.close();
          });
        } finally {
          rmSync(folder, { recursive: true });
        }
      }),
      { numRuns: draws(1), endOnFailure: true },
    );
    expect([...starts]).toEqual(expect.arrayContaining(['warm', 'partial', 'cold', 'disk']));
  });
});
