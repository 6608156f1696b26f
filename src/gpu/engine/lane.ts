/** One GPU in the engine: its memory, its streams, its programs. It executes one invocation at a time. */
import type {
  CopiedBytes,
  Cuda,
  CudaDevice,
  CudaEvent,
  CudaGraph,
  CudaModule,
  DeviceAddress,
} from '../driver/types.ts';
import { CountedValues, getOrStart, SharedValues } from '../../tools/index.ts';
import { alignUp } from '../program/arena.ts';
import type { Program } from '../program/types.ts';
import { GpuError, type Capability } from '../types.ts';
import { Binding } from './binding.ts';
import { LaneDecoding } from './coded-layers.ts';
import { compact, type Compactable } from './compaction.ts';
import { Decoder } from './decoder.ts';
import { HostReader } from './host-reader.ts';
import { DevicePool, type DeviceBlock, type MemoryPurpose } from './device-memory.ts';
import { Mutex } from './mutex.ts';
import type { IoBuffers } from './pinned-pool.ts';
import { Products, type Product } from './products.ts';
import type { DeviceLayer, ResidencyFamily } from './device-layer.ts';
import { RunEnds } from './run-ends.ts';
import type { Fence, OrderedStream, Streams } from './streams.ts';

/** Shared by all functions that run the same program on this GPU. */
interface LoadedProgram {
  readonly module: CudaModule | null;
  readonly constants: DeviceBlock | null;
}

const bindingKey = (functionKey: string, programKey: string): string => `${functionKey}\0${programKey}`;

export interface LaneOptions {
  /** Of the GPU's memory; default: most of what is free. */
  readonly limitBytes: number | undefined;
  /** Capabilities that the GPU lacks. */
  readonly without: ReadonlySet<Capability>;
}

/** Bytes of one GPU's memory, by what they hold. */
export type GpuMemoryState = ReturnType<GpuLane['memory']>;

export class GpuLane implements Compactable {
  readonly index: number;
  readonly device: CudaDevice;
  readonly without: ReadonlySet<Capability>;
  readonly pool: DevicePool;
  /** For kernels, and copies within the GPU. */
  readonly execution: OrderedStream;
  /** Copies from host memory. */
  readonly load: OrderedStream;
  /** For layers that this GPU passes on to another one, and for those that it decodes. */
  readonly migration: OrderedStream;
  readonly mutex = new Mutex();
  readonly ends = new RunEnds();
  readonly decoding = new LaneDecoding();
  readonly owners: Compactable['owners'] = new Map();
  /** Of all functions, by id: those with the same bytes are one. */
  readonly layers = new CountedValues<DeviceLayer>();
  readonly families = new CountedValues<ResidencyFamily>();
  readonly #cuda: Cuda;
  readonly #io: IoBuffers;
  /** By function and program. */
  readonly #bindings = new Map<string, Promise<Binding>>();
  readonly #programs = new SharedValues<LoadedProgram>();
  readonly #products: Products;
  #reader: HostReader | undefined;
  #decoder: Promise<Decoder> | undefined;
  #loading: Promise<HostReader> | undefined;
  readonly #timers: CudaEvent[] = [];
  readonly #idleTimers: CudaEvent[] = [];
  /** Graphs that a run under way may still use. */
  #retiredGraphs: { readonly graph: CudaGraph; readonly after: Fence }[] = [];
  #scratch: DeviceBlock | null = null;
  /** The mutex is held to allocate memory: no run is being submitted. */
  #isMakingRoom = false;
  #scratchUse: Fence | null = null;

  constructor(cuda: Cuda, device: CudaDevice, streams: Streams, io: IoBuffers, options: LaneOptions) {
    this.#cuda = cuda;
    this.without = options.without;
    this.#products = new Products(cuda, device, options.without);
    this.#io = io;
    this.index = device.index;
    this.device = device;
    this.pool = new DevicePool(device, options.limitBytes);
    this.execution = streams.open(device, 'execution', 'high');
    this.load = streams.open(device, 'load', 'normal');
    this.migration = streams.open(device, 'migration', 'normal');
  }

  /** Resolves when no submitted work is under way, however it ended. */
  async drained(): Promise<void> {
    const streams = [this.execution, this.load, this.migration];
    await Promise.allSettled(streams.map((stream) => stream.finished()));
  }

  memory() {
    const { pool } = this;
    return {
      gpu: this.index,
      limitBytes: pool.limitBytes,
      weightBytes: pool.bytesFor('weights'),
      /** Activations and workspace of the one running program. */
      scratchBytes: pool.bytesFor('scratch'),
      /** Constants of compiled programs. */
      constantBytes: pool.bytesFor('constants'),
      /** Weights passing through on their way to another GPU. */
      stagingBytes: pool.bytesFor('staging'),
      freeBytes: pool.freeBytes,
      largestFreeBytes: pool.largestFreeBytes,
    };
  }

  get isSubmitting(): boolean {
    return this.mutex.isTaken && !this.#isMakingRoom;
  }

  /**
   * As {@link allocate}, once no run is being submitted: then activations and constants are moved as well.
   *
   * @throws GpuError 'cancelled'
   */
  async allocateBetweenRuns(
    sizes: readonly number[],
    purpose: MemoryPurpose,
    signal?: AbortSignal,
  ): Promise<DeviceBlock[] | undefined> {
    using _turn = await this.mutex.lock(signal);
    return this.#makingRoom(() => this.allocate(sizes, purpose));
  }

  /** For a caller that holds the mutex and has submitted nothing yet. */
  #makingRoom<Result>(allocate: () => Result): Result {
    this.#isMakingRoom = true;
    try {
      return allocate();
    } finally {
      this.#isMakingRoom = false;
    }
  }

  /** One block for each size, or none at all. If free bytes lie in pieces, layers are moved together. */
  allocate(sizes: readonly number[], purpose: MemoryPurpose): DeviceBlock[] | undefined {
    const found = this.#tryAllocate(sizes, purpose);
    if (found !== undefined) return found;
    const neededBytes = sizes.reduce((sum, bytes) => sum + alignUp(bytes), 0);
    if (neededBytes > this.pool.freeBytes || !this.#compact()) return undefined;
    return this.#tryAllocate(sizes, purpose);
  }

  /** Between runs activations are not needed: they make way, and get the high end. */
  #compact(): boolean {
    const scratch = this.isSubmitting ? null : this.#scratch;
    if (scratch === null) return compact(this);
    this.#dropScratch();
    compact(this);
    const block = this.#tryAllocate([scratch.bytes], 'scratch')?.[0];
    if (block !== undefined) this.#scratch = this.#awaited(block);
    return true;
  }

  #tryAllocate(sizes: readonly number[], purpose: MemoryPurpose): DeviceBlock[] | undefined {
    const blocks: DeviceBlock[] = [];
    for (const bytes of sizes) {
      const block = this.pool.allocate(bytes, purpose);
      if (block === undefined) {
        for (const taken of blocks) this.pool.free(taken, []);
        return undefined;
      }
      blocks.push(block);
    }
    return blocks;
  }

  /** A function's program on this GPU; the first call compiles and loads it. @throws CudaError, GpuError */
  bind(functionKey: string, program: Program): Promise<Binding> {
    const key = bindingKey(functionKey, program.key);
    return getOrStart(this.#bindings, key, () => this.#bind(program));
  }

  /** Frees all launches of a function. */
  async unbindAll(functionKey: string): Promise<void> {
    const prefix = bindingKey(functionKey, '');
    const keys = [...this.#bindings.keys()].filter((key) => key.startsWith(prefix));
    for (const key of keys) await this.unbind(functionKey, key.slice(prefix.length));
  }

  /** After the library failed at a product: the next run has a kernel for it. */
  async replaceOutdated(functionKey: string, program: Program): Promise<void> {
    const binding = await this.#bindings.get(bindingKey(functionKey, program.key));
    if (binding?.outdated === true) await this.unbind(functionKey, program.key);
  }

  /** Frees a function's launches of a program, once the runs that use them have ended. */
  async unbind(functionKey: string, programKey: string): Promise<void> {
    const key = bindingKey(functionKey, programKey);
    const bound = this.#bindings.get(key);
    if (bound === undefined) return;
    this.#bindings.delete(key);
    let binding: Binding;
    try {
      binding = await bound;
    } catch {
      return;
    }
    using _turn = await this.mutex.lock();
    await this.execution.finished();
    await this.#releaseBinding(binding);
    if (this.#bindings.size === 0) this.#dropScratch();
  }

  async #bind(program: Program): Promise<Binding> {
    if (this.#reader === undefined && !this.without.has('host-reads-by-kernels')) {
      this.#loading ??= HostReader.load(this.#cuda, this.device).finally(() => (this.#loading = undefined));
      this.#reader = await this.#loading;
    }
    const loaded = await this.#programs.take(program.key, () => this.#load(program));
    const products: (Product | undefined)[] = [];
    try {
      for (const launch of program.launches) {
        products.push(launch.kind === 'matmul' ? await this.#products.acquire(launch.description) : undefined);
      }
      return new Binding({ program, ...loaded, products, copyFromHost: this.copyFromHost });
    } catch (error) {
      for (const product of products) product?.release();
      await this.#unload(program.key);
      throw error;
    }
  }

  /** Kernels and constants of a program. */
  async #load(program: Program): Promise<LoadedProgram> {
    const hasKernels = program.launches.some(({ kind }) => kind === 'kernel');
    const image = hasKernels ? await this.#cuda.compiler.compile(program.source, this.device) : null;
    const bytes = program.constants.byteLength;
    let constants: DeviceBlock | null = null;
    if (bytes > 0) {
      constants = this.allocate([bytes], 'constants')?.[0] ?? null;
      if (constants === null) throw this.#outOfMemory('constants', bytes);
    }
    try {
      if (constants !== null) {
        using buffer = await this.#io.allocate(bytes);
        buffer.view.set(program.constants);
        this.execution.waitForAll(constants.fences);
        this.execution.cuda.copy(constants.address, buffer.address, bytes);
        await this.execution.finished();
      }
      const module = image === null ? null : this.device.loadModule(image);
      return { module, constants };
    } catch (error) {
      if (constants !== null) this.pool.free(constants, []);
      throw error;
    }
  }

  /** Bytes that copies have moved so far, those by the kernel included. */
  get copied(): CopiedBytes {
    const { copied } = this.device;
    return { ...copied, fromHost: copied.fromHost + (this.#reader?.bytes ?? 0) };
  }

  /** Submits a copy from pinned host memory to the execution stream. A program must be bound. */
  readonly copyFromHost = (to: DeviceAddress, from: DeviceAddress, bytes: number): void => {
    const { cuda } = this.execution;
    if (this.#reader === undefined) cuda.copy(to, from, bytes);
    else this.#reader.copy(cuda, to, from, bytes);
  };

  /** Decodes layers on this GPU; the first call compiles the kernel. @throws CudaError */
  decoder(): Promise<Decoder> {
    return (this.#decoder ??= Decoder.load(this.#cuda, this.device).catch((error: unknown) => {
      this.#decoder = undefined;
      throw error;
    }));
  }

  async #unload(programKey: string): Promise<void> {
    const left = await this.#programs.leave(programKey);
    left?.module?.release();
    if (left?.constants) this.pool.free(left.constants, []);
  }

  /**
   * Activations, workspace and staging memory for a program, at addresses shared by all programs of this GPU, since
   * they execute one after the other. The caller must hold the lane, and the binding must know which of its layers are
   * in host memory. Returns true if layers may have been moved to make room.
   *
   * @param staging the caller's temporary memory for {@link Binding.stagingBytes}
   */
  prepareScratch(binding: Binding, staging?: DeviceBlock): boolean {
    const { scratchBytes } = binding;
    const neededBytes = Math.max(256, scratchBytes + (staging === undefined ? binding.stagingBytes : 0));
    const isTaken = this.#scratch === null || this.#scratch.bytes < neededBytes;
    if (isTaken) {
      this.#dropScratch();
      this.#scratch = this.#take(neededBytes, 'scratch', 'activations');
    }
    const { address } = this.#scratch!;
    binding.setScratch(address, staging?.address ?? address + scratchBytes);
    return isTaken;
  }

  /** Temporary memory; runs keep theirs permanently. @throws GpuError */
  takeStaging(bytes: number): DeviceBlock {
    return this.#take(bytes, 'staging', 'layers in host memory');
  }

  #take(bytes: number, purpose: MemoryPurpose, what: string): DeviceBlock {
    const block = this.#makingRoom(() => this.allocate([bytes], purpose)?.[0]);
    if (block === undefined) throw this.#outOfMemory(what, bytes);
    return this.#awaited(block);
  }

  /** A block that the execution stream may write. */
  #awaited(block: DeviceBlock): DeviceBlock {
    try {
      this.execution.waitForAll(block.fences);
      return block;
    } catch (error) {
      this.pool.free(block, []);
      throw error;
    }
  }

  get scratch(): DeviceBlock | null {
    return this.#scratch;
  }

  /** The work submitted so far uses the activations and the graph. */
  used(fence: Fence): void {
    this.#scratchUse = fence;
    this.#retiredGraphs = this.#retiredGraphs.filter(({ graph, after }) => {
      if (after.passed) graph.release();
      return !after.passed;
    });
  }

  /** Releases a graph when the runs that were submitted so far have ended. */
  retireGraph(graph: CudaGraph): void {
    const after = this.#scratchUse;
    if (after === null || after.passed) graph.release();
    else this.#retiredGraphs.push({ graph, after });
  }

  /** An event with a timestamp. */
  timer(): CudaEvent {
    const idle = this.#idleTimers.pop();
    if (idle !== undefined) return idle;
    const timer = this.device.createEvent({ timing: true });
    this.#timers.push(timer);
    return timer;
  }

  giveTimers(timers: readonly CudaEvent[]): void {
    this.#idleTimers.push(...timers);
  }

  #dropScratch(): void {
    if (this.#scratch !== null) this.pool.free(this.#scratch, [this.#scratchUse]);
    this.#scratch = null;
  }

  async #releaseBinding(binding: Binding): Promise<void> {
    binding.release();
    await this.#unload(binding.program.key);
  }

  /** The caller adds the function's name: programs are shared by like functions, and have only a hash for a name. */
  #outOfMemory(what: string, bytes: number): GpuError {
    return new GpuError(
      'out-of-memory',
      `GPU ${this.index} has ${this.pool.freeBytes} bytes free, and the function's ${what} take ${bytes}`,
    );
  }

  /** Frees everything. No work may be under way. */
  async close(): Promise<void> {
    for (const bound of this.#bindings.values()) {
      try {
        await this.#releaseBinding(await bound);
      } catch {
        // It could not be bound, so there is nothing to release.
      }
    }
    this.#bindings.clear();
    this.#reader?.release();
    (await this.#decoder)?.release();
    this.#dropScratch();
    for (const { graph } of this.#retiredGraphs) graph.release();
    for (const timer of this.#timers) timer.release();
    this.pool[Symbol.dispose]();
  }
}
