/**
 * The model driver: a CUDA driver in JavaScript, to test what the engine submits and in which order. Streams run as
 * late as possible, in an order drawn from a seed. Every access is checked for races, and objects that are not freed
 * are counted. It has two kernels, one of which copies; whole programs run on the emulated driver instead.
 */
import { CudaError, type Cuda, type HostMemory, type LiveCounts } from '../../../src/gpu/driver/types.ts';
import type { CudaErrorKind } from '../../../src/gpu/types.ts';
import { ModelDevice } from './model-device.ts';
import type { Access, Allocation, ModelCudaOptions, ModelMachine, ModelStream, Work } from './model-streams.ts';

interface Logged extends Access {
  readonly stream: number;
  readonly sequence: number;
  readonly label: string;
}

export class ModelCuda implements Cuda, ModelMachine {
  readonly driverVersion = 13000;
  readonly isEmulated = true;
  readonly devices: readonly ModelDevice[];
  readonly races: string[] = [];
  readonly options: ModelCudaOptions;
  readonly allocations: Allocation[] = [];
  readonly streams: ModelStream[] = [];
  readonly live = {
    deviceBytes: 0,
    hostBytes: 0,
    allocations: 0,
    streams: 0,
    events: 0,
    modules: 0,
    graphs: 0,
    matmuls: 0,
  };
  readonly #log: Logged[] = [];
  /** By stream, the last work that this thread knows to have ended. */
  hostClock: number[] = [];
  /** How often host memory was pinned. */
  pinned = 0;
  /** How often host memory was pinned on another thread, and a promise that pinning waits for. */
  pinnedAside = 0;
  pinning: Promise<void> = Promise.resolve();
  /** How often a graph was made, and how often one was updated with other addresses. */
  graphsMade = 0;
  graphUpdates = 0;
  broken: CudaErrorKind | null = null;
  #random: number;
  #timeMs = 0;
  #hostAddress = 2 ** 36;

  constructor(options: ModelCudaOptions) {
    this.options = options;
    this.#random = (options.seed ?? 1) || 1;
    this.devices = Array.from({ length: options.devices }, (_, index) => new ModelDevice(this, index));
  }

  readonly productsVersion = 0;

  get compiler() {
    return { version: 'model', compile: () => Promise.resolve(new Uint8Array(1)) };
  }

  random(below: number): number {
    this.#random = (this.#random * 48271) % 0x7fffffff;
    return this.#random % below;
  }

  allocateHost(bytes: number): HostMemory {
    const address = this.#hostAddress;
    this.#hostAddress += Math.ceil(bytes / 4096) * 4096 + (this.options.hostAdjoins === true ? 0 : 4096);
    const allocation = this.allocate(address, bytes, -1);
    this.pinned++;
    this.live.hostBytes += bytes;
    const released = this.releasable(() => {
      this.drop(allocation);
      this.live.hostBytes -= bytes;
    });
    return {
      bytes,
      address,
      view: (offset, length) => {
        if (!this.allocations.includes(allocation)) throw new Error('a view of host memory that was released');
        return allocation.data.subarray(offset, offset + length);
      },
      ...released,
      releaseAside: async () => released.release(),
    };
  }

  async allocateHostAside(bytes: number): Promise<HostMemory> {
    this.pinnedAside++;
    await this.pinning;
    return this.allocateHost(bytes);
  }

  async pinAside(): Promise<HostMemory> {
    return await Promise.reject(new Error('the model driver pins no memory of others'));
  }

  allocate(address: number, bytes: number, device: number): Allocation {
    // Bytes that were never written are NaN as floats.
    const allocation = { low: address, high: address + bytes, device, data: new Uint8Array(bytes).fill(0xff) };
    this.allocations.push(allocation);
    this.live.allocations++;
    return allocation;
  }

  drop(allocation: Allocation): void {
    // Freeing waits for all submitted work.
    this.runAll();
    this.allocations.splice(this.allocations.indexOf(allocation), 1);
    this.live.allocations--;
  }

  bytes(address: number, length: number): Uint8Array {
    const found = this.allocations.find(({ low, high }) => address >= low && address + length <= high);
    if (found === undefined) throw new Error(`${length} bytes at ${address} are not allocated`);
    return found.data.subarray(address - found.low, address - found.low + length);
  }

  releasable(release: () => void): { release: () => void; [Symbol.dispose]: () => void } {
    let isOver = false;
    const once = (): void => {
      if (!isOver) release();
      isOver = true;
    };
    return { release: once, [Symbol.dispose]: once };
  }

  check(call: string): void {
    if (this.broken !== null)
      throw new CudaError(this.broken, call, 700, 'BROKEN', `${call}: the context is ${this.broken}`);
  }

  /** Compares with all accesses that may happen at the same time. */
  access(stream: ModelStream, { label, accesses, isKernel }: Work): void {
    for (const { low, high, isWrite } of accesses) {
      this.#checkPlace(stream, low, high, label, isKernel);
      for (const other of this.#log) {
        if (other.low >= high || low >= other.high || !(isWrite || other.isWrite)) continue;
        if ((stream.clock[other.stream] ?? 0) >= other.sequence) continue;
        this.races.push(`${label} and ${other.label} on ${Math.max(low, other.low)}`);
      }
      this.#log.push({ low, high, isWrite, stream: stream.id, sequence: stream.clock[stream.id]!, label });
    }
  }

  /** This thread has seen that everything up to a mark has ended: work that it submits later comes after that. */
  seen(clock: readonly number[]): void {
    for (const [id, sequence] of clock.entries()) this.hostClock[id] = Math.max(this.hostClock[id] ?? 0, sequence);
    const kept = this.#log.filter(({ stream, sequence }) => (this.hostClock[stream] ?? 0) < sequence);
    this.#log.splice(0, this.#log.length, ...kept);
  }

  #checkPlace(stream: ModelStream, low: number, high: number, label: string, isKernel: boolean): void {
    const found = this.allocations.find((each) => low >= each.low && high <= each.high);
    if (found === undefined) throw new Error(`${label} touches ${low} to ${high}, which is not allocated`);
    if (found.device < 0) return;
    const owner = this.devices[found.device]!;
    if (found.device !== stream.device.index && !stream.device.peers.has(found.device)) {
      throw new Error(`${label} of GPU ${stream.device.index} touches memory of GPU ${found.device}`);
    }
    const isDeclared = [...owner.declared].some(([at, bytes]) => low >= at && high <= at + bytes);
    if (!isDeclared && isKernel) throw new Error(`${label} touches ${low} to ${high}, a range that no buffer declared`);
  }

  /** Runs the next work of a random stream that is ready. Returns false if none is. */
  step(): boolean {
    const ready = this.streams.filter((stream) => stream.isReady);
    if (ready.length === 0) return false;
    this.#timeMs++;
    ready[this.random(ready.length)]!.runNext(this.#timeMs);
    return true;
  }

  runAll(): void {
    while (this.step());
  }

  counts(): LiveCounts {
    return { ...this.live };
  }

  release(): void {
    this.runAll();
  }

  [Symbol.dispose](): void {
    this.release();
  }
}
