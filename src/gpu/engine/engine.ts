/**
 * Runs functions on the GPUs of a machine by cold start plans. Weights are handled by layers: on the GPU, being copied,
 * or in pinned host memory; execution waits for exactly the layers that it is about to use (DeepPlan, Jeong et al.,
 * EuroSys 2023, 4.1, 4.2 and 4.3.4). The engine decides nothing: its caller decides what to load, keep and evict.
 */
import type { SharedMemory } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { CudaError, type Cuda, type CudaDevice } from '../driver/types.ts';
import type { Program, WeightLayout } from '../program/types.ts';
import {
  GpuError,
  type Capability,
  type GpuLinkState,
  type HostTier,
  type LoadResult,
  type RunOptions,
  type RunResult,
  type Staged,
} from '../types.ts';
import { CodedLayersWrong } from './coded-layers.ts';
import type { HostStoreState } from './host-store.ts';
import type { GpuMemoryState } from './lane.ts';
import type { Exchange } from './exchange.ts';
import { HostStore } from './host-store.ts';
import { GpuLane } from './lane.ts';
import { loadAhead, type LoadOptions } from './load.ts';
import { IoBuffers, type IoBuffer } from './pinned-pool.ts';
import { EngineFunction, type Residency, type ResidencyState } from './residency.ts';
import type { RunContext } from './run-context.ts';
import { Run } from './run.ts';
import { SharedTensors } from './shared-tensors.ts';
import { Streams, type StreamsOptions } from './streams.ts';

export interface EngineOptions {
  /** Pinned host memory for weights, at the start. */
  readonly hostBytes: number;
  /** Bytes pinned at a time. Default 64 MiB: the driver holds its locks while it pins, 0.6 ms for a MiB. */
  readonly slabBytes?: number;
  /** Per GPU, for weights, activations and the rest. Default: 92% of what is free. */
  readonly gpuBytes?: number;
  /** Default 64 MiB: a thread that launches the many layers of a ResNet lets the link wait with 16. */
  readonly lookaheadBytes?: number;
  /** Default 256 MiB. */
  readonly windowBytes?: number;
  readonly streams?: StreamsOptions;
  /** Capabilities that the GPUs lack. */
  readonly without?: ReadonlySet<Capability>;
  /** Where inputs come from and lent outputs go to, if they are large. */
  readonly shared?: SharedMemory;
  /** See {@link SharedTensorsOptions}. */
  readonly onSharedRefused?: (error: Error) => void;
}

const mebibyte = 2 ** 20;

export class Engine {
  readonly cuda: Cuda;
  readonly #lanes: GpuLane[] = [];
  readonly #streams: Streams;
  readonly #io: IoBuffers;
  readonly #store: HostStore;
  readonly #functions = new Map<string, EngineFunction>();
  readonly #context: RunContext;
  #broken: GpuError | null = null;
  #added = 0;
  #isClosing = false;
  /** Runs and loads that have not ended. */
  #active = 0;
  #idle: (() => void)[] = [];

  /** @throws CudaError if the requested memory is not available */
  constructor(cuda: Cuda, options: EngineOptions) {
    this.cuda = cuda;
    this.#streams = new Streams(options.streams);
    const { without = new Set(), hostBytes: budgetBytes, slabBytes = 64 * mebibyte } = options;
    const kind = without.has('registered-memory') ? 'allocated' : 'registered';
    this.#io = new IoBuffers(cuda, kind, () => this.#store.trim());
    this.#store = new HostStore(cuda, { budgetBytes, slabBytes, kind, relieve: () => this.#io.trim() });
    const lane = { limitBytes: options.gpuBytes, without };
    try {
      for (const device of cuda.devices) {
        this.#lanes.push(new GpuLane(cuda, device, this.#streams, this.#io, lane));
      }
    } catch (error) {
      for (const lane of this.#lanes) lane.pool[Symbol.dispose]();
      this.#streams[Symbol.dispose]();
      throw error;
    }
    const { shared, onSharedRefused: onRefused = () => undefined } = options;
    const onPinned = (bytes: number): void => this.#io.pinnedElsewhere(bytes);
    this.#context = {
      io: this.#io,
      shared:
        shared === undefined || kind === 'allocated'
          ? undefined
          : new SharedTensors(cuda, shared, { onPinned, onRefused }),
      graphs: !without.has('graphs'),
      readsHost: !without.has('host-reads-by-kernels'),
      lookaheadBytes: options.lookaheadBytes ?? 64 * mebibyte,
      windowBytes: options.windowBytes ?? 256 * mebibyte,
      lane: (gpu) => this.#lanes[gpu],
      failed: (error) => this.#failed(error),
      layersRepaired: 0,
    };
  }

  get devices(): readonly CudaDevice[] {
    return this.cuda.devices;
  }

  /** Why nothing works any more: a poisoned context or a lost device. */
  get broken(): GpuError | null {
    return this.#broken;
  }

  /** Waits that were submitted so far; for tests. */
  get waits(): number {
    return this.#streams.waits;
  }

  /**
   * Registers a function by its weights, which stay on disk until they are staged.
   *
   * @param ids by layer: layers of equal ids are the same in all functions, with all that come before, and are kept once.
   *   Left out: none is the same. @throws GpuError 'invalid'
   */
  addFunction(key: string, layout: WeightLayout, ids?: readonly string[]): void {
    this.#check();
    if (this.#functions.has(key)) throw new GpuError('invalid', `function '${key}' is known already`);
    // Kernels say in pinned memory what they have found.
    if (!this.#context.readsHost && layout.layers.some(({ coded }) => coded !== undefined))
      throw new GpuError('invalid', `function '${key}' has coded layers, which these GPUs cannot decode`);
    // A function that is being removed may have had the same key.
    const own = this.#added++;
    const target = new EngineFunction(
      this.#store,
      key,
      layout,
      ids ?? layout.layers.map(({ index }) => `${own} ${index}`),
    );
    this.#functions.set(key, target);
    this.#store.add(target);
    // What another function has brought to a GPU stays there when that is removed.
    if (ids !== undefined) for (const lane of this.#lanes) target.residency(lane);
  }

  /** Forgets a function and frees all its memory, once its runs have ended. */
  async removeFunction(key: string): Promise<void> {
    const target = this.#function(key);
    this.#functions.delete(key);
    target.isRemoved = true;
    for (const residency of target.residencies()) {
      using _turn = await residency.enterToFree();
      residency.close();
    }
    for (const lane of this.#lanes) await lane.unbindAll(key);
    await this.#store.remove(target);
  }

  hasFunction(key: string): boolean {
    return this.#functions.has(key);
  }

  /** Compiles a program for a GPU and loads its kernels, so that no run has to wait for that. @throws GpuError */
  async bind(key: string, program: Program, gpu: number): Promise<void> {
    await this.#guard(async () => {
      // A function that was removed meanwhile would never be unbound.
      this.#function(key);
      await this.#lane(gpu).bind(key, program);
    });
  }

  /** Frees a function's launches of a program on all GPUs, and the kernels if no other function runs them. */
  async unbind(key: string, programKey: string): Promise<void> {
    await this.#guard(() => Promise.all(this.#lanes.map((lane) => lane.unbind(key, programKey))));
  }

  /**
   * Runs a program of a function. @param exchange for a part of a function whose other parts run elsewhere @throws
   * GpuError
   */
  run(
    key: string,
    program: Program,
    inputs: readonly Tensor[],
    options: RunOptions,
    exchange?: Exchange,
  ): Promise<RunResult> {
    return this.#guard(async () => {
      const lane = this.#lane(options.gpu);
      const execute = (): Promise<RunResult> =>
        new Run(this.#context, this.#function(key), lane, program, inputs, options, exchange).execute();
      try {
        return await execute();
      } catch (error) {
        // The run that comes next finds these layers as they are in their files.
        if (error instanceof CodedLayersWrong) {
          if (exchange !== undefined) throw error;
          return await execute();
        }
        if (!isOfProduct(error)) throw error;
        await lane.replaceOutdated(key, program);
        // The run cannot be repeated: others have taken some of its outputs.
        if (exchange !== undefined) throw error;
        return await execute();
      }
    });
  }

  /** Pinned memory for the tensors that a run exchanges with others. @throws GpuError */
  async allocateIo(bytes: number): Promise<IoBuffer> {
    this.#check();
    return await this.#io.allocate(bytes);
  }

  /** Resolves when the GPU has executed all work submitted so far, successfully or not. */
  async quiet(gpu: number): Promise<void> {
    await this.#lane(gpu)
      .execution.finished()
      .catch(() => undefined);
  }

  /** Loads weights to a GPU without executing. @throws GpuError */
  load(key: string, options: LoadOptions): Promise<LoadResult> {
    return this.#guard(() => loadAhead(this.#context, this.#function(key), this.#lane(options.gpu), options));
  }

  /** Keeps the first `layers` of a function's layers on a GPU and frees the others. Resolves with the bytes freed. */
  trim(key: string, gpu: number, layers: number): Promise<number> {
    return this.#free(key, gpu, (residency) => residency.release(residency.layers.slice(layers)));
  }

  /** Frees the layers of a function that are not among these. Resolves with the bytes freed. */
  keep(key: string, gpu: number, layers: ReadonlySet<number>): Promise<number> {
    return this.#free(key, gpu, (residency) =>
      residency.release(residency.layers.filter((layer) => !layers.has(layer))),
    );
  }

  /** Frees layers on a GPU, whichever functions have them. Resolves with the bytes freed. */
  release(key: string, gpu: number, layers: readonly number[]): Promise<number> {
    return this.#free(key, gpu, (residency) => residency.release(layers, true));
  }

  #free(key: string, gpu: number, free: (residency: Residency) => number): Promise<number> {
    return this.#guard(async () => {
      const residency = this.#function(key).residency(this.#lane(gpu));
      using _turn = await residency.enterToFree();
      return free(residency);
    });
  }

  /** Frees all layers of a function on a GPU. Resolves with the bytes freed. */
  evict(key: string, gpu: number): Promise<number> {
    return this.trim(key, gpu, 0);
  }

  /** Reads layers of a function from disk into pinned memory, if there is room; default: all. @throws GpuError */
  stage(key: string, layers?: readonly number[]): Promise<Staged> {
    return this.#guard(() => {
      const target = this.#function(key);
      return this.#store.stage(target, layers ?? target.all);
    });
  }

  /**
   * Frees pinned memory of layers, once no run or load reads from it; default: of all. Resolves with the bytes.
   *
   * @param ofAll whichever functions have them
   */
  drop(key: string, layers?: readonly number[], ofAll = false): Promise<number> {
    return this.#guard(() => {
      const target = this.#function(key);
      return this.#store.drop(target, layers ?? target.all, ofAll);
    });
  }

  /** Pins no more host memory for weights than this from now on. */
  resizeHost(hostBytes: number): Promise<void> {
    return this.#guard(() => this.#store.resize(hostBytes));
  }

  hostTier(key: string): HostTier {
    return this.#function(key).tier();
  }

  hostState(): HostStoreState {
    return this.#store.state();
  }

  residency(key: string, gpu: number): ResidencyState {
    return this.#function(key).residency(this.#lane(gpu)).state();
  }

  residencies(): ResidencyState[] {
    return [...this.#functions.values()].flatMap((target) =>
      target.residencies().flatMap((residency) => (residency.layers.length > 0 ? [residency.state()] : [])),
    );
  }

  /** Bytes that every GPU's copies have moved so far. */
  links(): GpuLinkState[] {
    return this.#lanes.map(({ index, copied }) => ({ gpu: index, ...copied }));
  }

  /** Coded layers that arrived with wrong bytes, and were loaded again as they are. */
  get layersRepaired(): number {
    return this.#context.layersRepaired;
  }

  memory(): GpuMemoryState[] {
    return this.#lanes.map((lane) => lane.memory());
  }

  /** For measurements: the lane of a GPU and a function's weights. */
  internals(key: string, gpu: number) {
    const lane = this.#lane(gpu);
    return { context: this.#context, lane, target: this.#function(key) };
  }

  /** Waits for work under way and frees everything. The driver stays open. */
  async close(): Promise<void> {
    if (this.#isClosing) return;
    this.#isClosing = true;
    await this.#store.stop();
    if (this.#active > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
    await Promise.all(this.#lanes.map((lane) => lane.drained()));
    // Cancelled runs release their buffers a moment after that.
    await new Promise((resolve) => setImmediate(resolve));
    for (const lane of this.#lanes) await this.#quietly(() => lane.close());
    await this.#quietly(() => this.#streams[Symbol.dispose]());
    await this.#quietly(() => this.#context.shared?.close());
    await this.#quietly(() => this.#io[Symbol.dispose]());
    await this.#quietly(() => this.#store[Symbol.dispose]());
    this.#functions.clear();
  }

  /** After a poisoned context only the end of the process frees anything. */
  async #quietly(release: () => void | Promise<void> | undefined): Promise<void> {
    try {
      await release();
    } catch (error) {
      if (this.#broken === null) throw error;
    }
  }

  #check(): void {
    if (this.#broken !== null) throw this.#broken;
    if (this.#isClosing) throw new GpuError('cancelled', 'the engine is being closed');
  }

  async #guard<Result>(act: () => Promise<Result>): Promise<Result> {
    this.#check();
    this.#active++;
    try {
      return await act();
    } catch (error) {
      throw this.#failed(error);
    } finally {
      if (--this.#active === 0) for (const tell of this.#idle.splice(0)) tell();
    }
  }

  #failed(error: unknown): Error {
    if (error instanceof GpuError && error.isFatal) this.#broken ??= error;
    return error as Error;
  }

  #lane(gpu: number): GpuLane {
    const lane = this.#lanes[gpu];
    if (lane === undefined) {
      throw new GpuError('unknown-gpu', `there is no GPU ${gpu}: there are ${this.#lanes.length}, counted from 0`);
    }
    return lane;
  }

  #function(key: string): EngineFunction {
    const target = this.#functions.get(key);
    if (target === undefined) throw new GpuError('unknown-function', `the engine knows no function '${key}'`);
    return target;
  }
}

/** Whether the library failed at a product while everything else works. */
function isOfProduct(error: unknown): boolean {
  return error instanceof CudaError && error.code === 'unsupported' && error.call === 'cublasLtMatmul';
}

export type { LoadOptions };
