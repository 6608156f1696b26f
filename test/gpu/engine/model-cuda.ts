/**
 * The model driver: a CUDA driver in JavaScript, to test what the engine submits and in which order. Streams run as
 * late as possible, in an order drawn from a seed. Every access is checked for races, and objects that are not freed
 * are counted. It has one kernel; whole programs run on the emulated driver instead.
 */
import {
  CudaError,
  type Cuda,
  type CudaDevice,
  type CudaErrorKind,
  type CudaEvent,
  type CudaGraph,
  type CudaModule,
  type CudaStream,
  type DeviceMemory,
  type HostMemory,
  type LiveCounts,
  type PreparedLaunch,
} from '../../../src/gpu/driver/types.ts';

interface Extent {
  readonly low: number;
  readonly high: number;
}

interface Access extends Extent {
  readonly isWrite: boolean;
}

interface Work {
  readonly label: string;
  /** Kernels must stay within allocated ranges; copies name the bytes that they touch. */
  readonly isKernel: boolean;
  readonly accesses: readonly Access[];
  readonly run: () => void;
}

type Operation =
  | { readonly kind: 'work'; readonly work: Work }
  | { readonly kind: 'record'; readonly mark: Mark }
  | { readonly kind: 'wait'; readonly mark: Mark };

/** One record of an event. */
interface Mark {
  isReached: boolean;
  readonly clock: readonly number[];
  timeMs: number;
}

interface Logged extends Access {
  readonly stream: number;
  readonly sequence: number;
  readonly label: string;
}

interface Allocation extends Extent {
  readonly device: number;
  readonly data: Uint8Array;
}

export interface ModelCudaOptions {
  readonly devices: number;
  readonly deviceBytes: number;
  readonly seed?: number;
  /** Pairs with peer access. Default: all. */
  readonly peers?: (from: number, to: number) => boolean;
}

export class ModelCuda implements Cuda {
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
    this.#hostAddress += Math.ceil(bytes / 4096) * 4096 + 4096;
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

class ModelDevice implements CudaDevice {
  readonly index: number;
  readonly name = 'Model GPU';
  readonly computeCapability = { major: 9, minor: 0 };
  readonly multiprocessors = 1;
  readonly copied = { fromHost: 0, toHost: 0, toPeers: 0 };
  readonly declared = new Map<number, number>();
  readonly peers = new Set<number>();
  readonly #cuda: ModelCuda;
  #usedBytes = 0;
  #nextAddress: number;

  constructor(cuda: ModelCuda, index: number) {
    this.#cuda = cuda;
    this.index = index;
    this.#nextAddress = (index + 1) * 2 ** 40;
  }

  get uuid(): string {
    return `GPU-${this.index}`;
  }

  get pciBusId(): string {
    return `0000:0${this.index}:00.0`;
  }

  get totalBytes(): number {
    return this.#cuda.options.deviceBytes;
  }

  memory() {
    return { freeBytes: this.totalBytes - this.#usedBytes, totalBytes: this.totalBytes };
  }

  allocate(bytes: number): DeviceMemory {
    this.#cuda.check('allocate');
    if (bytes > this.totalBytes - this.#usedBytes) {
      throw new CudaError('out-of-memory', 'cuMemAlloc_v2', 2, 'CUDA_ERROR_OUT_OF_MEMORY', 'out of memory');
    }
    const address = this.#nextAddress;
    this.#nextAddress += Math.ceil(bytes / 4096) * 4096 + 4096;
    const allocation = this.#cuda.allocate(address, bytes, this.index);
    this.#usedBytes += bytes;
    this.#cuda.live.deviceBytes += bytes;
    return {
      bytes,
      address,
      ...this.#cuda.releasable(() => {
        this.#cuda.drop(allocation);
        this.#usedBytes -= bytes;
        this.#cuda.live.deviceBytes -= bytes;
      }),
    };
  }

  createStream(): CudaStream {
    return new ModelStream(this.#cuda, this);
  }

  createEvent(): CudaEvent {
    return new ModelEvent(this.#cuda, this);
  }

  loadModule(): CudaModule {
    this.#cuda.live.modules++;
    return {
      kernel: (name) => ({
        name,
        prepare: (shape): PreparedLaunch => {
          const values: number[] = [];
          return {
            kernel: this.#module.kernel(name),
            shape,
            set: (index, value) => (values[index] = value),
            values,
            ...this.#cuda.releasable(() => undefined),
          } as PreparedLaunch & { values: number[] };
        },
      }),
      ...this.#cuda.releasable(() => this.#cuda.live.modules--),
    };
  }

  readonly #module = { kernel: (name: string) => ({ name, prepare: () => never() }) };

  canAccessPeer(other: CudaDevice): boolean {
    return this.#cuda.options.peers?.(this.index, other.index) ?? true;
  }

  enablePeerAccess(other: CudaDevice): void {
    this.peers.add(other.index);
  }

  synchronize(): void {
    this.#cuda.runAll();
  }

  createMatmul(): never {
    return never();
  }

  declareRange(address: number, bytes: number): void {
    this.declared.set(address, bytes);
  }

  forgetRange(address: number): void {
    if (!this.declared.delete(address)) throw new Error(`the range at ${address} is forgotten, but was never declared`);
  }
}

function never(): never {
  throw new Error('the model driver has no such thing');
}

class ModelEvent implements CudaEvent {
  readonly device: CudaDevice;
  readonly #cuda: ModelCuda;
  mark: Mark | null = null;
  readonly #release: () => void;

  constructor(cuda: ModelCuda, device: CudaDevice) {
    this.#cuda = cuda;
    this.device = device;
    cuda.live.events++;
    this.#release = cuda.releasable(() => cuda.live.events--).release;
  }

  release(): void {
    this.#release();
  }

  [Symbol.dispose](): void {
    this.#release();
  }

  reached(): boolean {
    this.#cuda.step();
    if (this.mark === null || this.mark.isReached) {
      if (this.mark !== null) this.#cuda.seen(this.mark.clock);
      return true;
    }
    return false;
  }

  msSince(earlier: CudaEvent): number {
    const start = (earlier as ModelEvent).mark;
    if (this.mark?.isReached !== true || start?.isReached !== true) throw new Error('an event was not reached');
    if (earlier.device !== this.device) throw new Error('events of two GPUs have no time between them');
    return this.mark.timeMs - start.timeMs;
  }
}

class ModelGraph implements CudaGraph {
  readonly kind = 'graph';
  work: readonly Work[];
  readonly #release: () => void;
  isReleased = false;
  constructor(cuda: ModelCuda, work: readonly Work[]) {
    this.work = work;
    cuda.live.graphs++;
    this.#release = cuda.releasable(() => {
      this.isReleased = true;
      cuda.live.graphs--;
    }).release;
  }

  release(): void {
    this.#release();
  }

  [Symbol.dispose](): void {
    this.#release();
  }
}

class ModelStream implements CudaStream {
  readonly device: ModelDevice;
  readonly id: number;
  readonly clock: number[] = [];
  readonly #cuda: ModelCuda;
  readonly #queue: Operation[] = [];
  #captured: Work[] | null = null;
  readonly #release: () => void;

  constructor(cuda: ModelCuda, device: ModelDevice) {
    this.#cuda = cuda;
    this.device = device;
    this.id = cuda.streams.length;
    this.clock[this.id] = 0;
    cuda.streams.push(this);
    cuda.live.streams++;
    this.#release = cuda.releasable(() => {
      cuda.runAll();
      cuda.live.streams--;
    }).release;
  }

  release(): void {
    this.#release();
  }

  [Symbol.dispose](): void {
    this.#release();
  }

  get isReady(): boolean {
    const [next] = this.#queue;
    return next !== undefined && (next.kind !== 'wait' || next.mark.isReached);
  }

  runNext(timeMs: number): void {
    const next = this.#queue.shift()!;
    if (next.kind === 'work') next.work.run();
    if (next.kind === 'record') {
      next.mark.isReached = true;
      next.mark.timeMs = timeMs;
    }
  }

  copy(destination: number, source: number, bytes: number): void {
    this.#submit({
      isKernel: false,
      label: `copy of ${bytes} bytes on stream ${this.id}`,
      accesses: [
        { low: source, high: source + bytes, isWrite: false },
        { low: destination, high: destination + bytes, isWrite: true },
      ],
      run: () => this.#cuda.bytes(destination, bytes).set(this.#cuda.bytes(source, bytes).slice()),
    });
  }

  fill(destination: number, byteValue: number, bytes: number): void {
    this.#submit({
      isKernel: false,
      label: `fill on stream ${this.id}`,
      accesses: [{ low: destination, high: destination + bytes, isWrite: true }],
      run: () => this.#cuda.bytes(destination, bytes).fill(byteValue),
    });
  }

  /**
   * The only kernel: y[i] = 3 x[i] + the sum of all words of w + w[i mod its length], in 32-bit words. Its arguments
   * are (w, words of w, x, y, n).
   */
  launch(launch: PreparedLaunch): void {
    const [w = 0, words = 0, x = 0, y = 0, n = 0] = (launch as PreparedLaunch & { values: number[] }).values;
    this.#submit({
      isKernel: true,
      label: `kernel on stream ${this.id}`,
      accesses: [
        { low: w, high: w + words * 4, isWrite: false },
        { low: x, high: x + n * 4, isWrite: false },
        { low: y, high: y + n * 4, isWrite: true },
      ],
      run: () => {
        const weights = this.#words(w, words);
        let sum = 0;
        for (const word of weights) sum = (sum + word) | 0;
        const from = this.#words(x, n).slice();
        const to = this.#words(y, n);
        for (let i = 0; i < n; i++) to[i] = Math.imul(from[i]!, 3) + sum + (words > 0 ? weights[i % words]! : 0);
      },
    });
  }

  #words(address: number, count: number): Uint32Array {
    const bytes = this.#cuda.bytes(address, count * 4);
    return new Uint32Array(bytes.buffer, bytes.byteOffset, count);
  }

  matmul(): never {
    return never();
  }

  wait(event: CudaEvent): void {
    this.#cuda.check('cuStreamWaitEvent');
    const { mark } = event as ModelEvent;
    if (mark === null) {
      this.#cuda.races.push(`stream ${this.id} waits for an event that was never recorded`);
      return;
    }
    if (this.#captured !== null)
      throw new CudaError('misuse', 'cuStreamWaitEvent', 905, '', 'a wait inside of a capture');
    for (const [id, sequence] of mark.clock.entries()) this.clock[id] = Math.max(this.clock[id] ?? 0, sequence);
    this.#queue.push({ kind: 'wait', mark });
  }

  record(event: CudaEvent): void {
    this.#cuda.check('cuEventRecord');
    if (event.device !== this.device)
      throw new CudaError('misuse', 'cuEventRecord', 400, '', 'an event of another GPU');
    const mark = this.#mark();
    (event as ModelEvent).mark = mark;
    this.#queue.push({ kind: 'record', mark });
  }

  #mark(): Mark {
    this.clock[this.id]!++;
    return { isReached: false, clock: [...this.clock].map((sequence) => sequence ?? 0), timeMs: 0 };
  }

  idle(): boolean {
    this.#cuda.step();
    return this.#queue.length === 0;
  }

  synchronize(): void {
    const mark = this.#mark();
    this.#queue.push({ kind: 'record', mark });
    while (!mark.isReached && this.#cuda.step());
    this.#cuda.seen(mark.clock);
  }

  async finished(): Promise<void> {
    this.#cuda.check('cuEventRecord');
    const mark = this.#mark();
    this.#queue.push({ kind: 'record', mark });
    while (!mark.isReached) {
      await new Promise((resolve) => setImmediate(resolve));
      // Runs some of the work now, some of it later.
      for (let count = this.#cuda.random(8); count >= 0 && !mark.isReached; count--) {
        if (!this.#cuda.step()) throw new Error('the streams wait for each other');
      }
    }
    this.#cuda.check('cuEventQuery');
    this.#cuda.seen(mark.clock);
  }

  capture(submit: () => void, earlier?: CudaGraph): CudaGraph {
    const captured: Work[] = [];
    this.#captured = captured;
    submit();
    this.#captured = null;
    const labels = (work: readonly Work[]): string => work.map(({ label }) => label).join('\n');
    if (earlier instanceof ModelGraph && labels(earlier.work) === labels(captured)) {
      if (earlier.isReleased) throw new Error('a graph was updated after its release');
      earlier.work = captured;
      this.#cuda.graphUpdates++;
      return earlier;
    }
    this.#cuda.graphsMade++;
    return new ModelGraph(this.#cuda, captured);
  }

  launchGraph(graph: CudaGraph): void {
    if ((graph as ModelGraph).isReleased) throw new Error('a graph was launched after its release');
    for (const work of (graph as ModelGraph).work) this.#submit(work);
  }

  #submit(work: Work): void {
    this.#cuda.check('cuLaunchKernelEx');
    if (this.#captured !== null) {
      this.#captured.push(work);
      return;
    }
    for (const [id, sequence] of this.#cuda.hostClock.entries())
      this.clock[id] = Math.max(this.clock[id] ?? 0, sequence ?? 0);
    this.clock[this.id]!++;
    this.#cuda.access(this, work);
    this.#queue.push({ kind: 'work', work });
  }
}
