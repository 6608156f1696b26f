/** Streams of the model driver, and what runs on them: work, events and graphs. */
import {
  CudaError,
  type CudaDevice,
  type CudaEvent,
  type CudaGraph,
  type CudaStream,
  type LiveCounts,
  type PreparedLaunch,
} from '../../../src/gpu/driver/types.ts';

export interface Extent {
  readonly low: number;
  readonly high: number;
}

export interface Access extends Extent {
  readonly isWrite: boolean;
}

export interface Work {
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

export interface Allocation extends Extent {
  readonly device: number;
  readonly data: Uint8Array;
}

export interface ModelCudaOptions {
  readonly devices: number;
  readonly deviceBytes: number;
  readonly seed?: number;
  /** Each pinned region begins where the one before ends. */
  readonly hostAdjoins?: boolean;
  /** Pairs with peer access. Default: all. */
  readonly peers?: (from: number, to: number) => boolean;
}

/** A device whose memory other devices may reach. */
export interface PeerDevice extends CudaDevice {
  readonly peers: ReadonlySet<number>;
}

/** What streams and devices need of the machine that they belong to: ModelCuda. */
export interface ModelMachine {
  readonly options: ModelCudaOptions;
  readonly races: string[];
  readonly streams: ModelStream[];
  readonly live: Record<keyof LiveCounts, number>;
  readonly hostClock: readonly number[];
  graphsMade: number;
  graphUpdates: number;
  random(below: number): number;
  allocate(address: number, bytes: number, device: number): Allocation;
  drop(allocation: Allocation): void;
  bytes(address: number, length: number): Uint8Array;
  releasable(release: () => void): { release: () => void; [Symbol.dispose]: () => void };
  check(call: string): void;
  access(stream: ModelStream, work: Work): void;
  seen(clock: readonly number[]): void;
  step(): boolean;
  runAll(): void;
}

export function never(): never {
  throw new Error('the model driver has no such thing');
}

export class ModelEvent implements CudaEvent {
  readonly device: CudaDevice;
  mark: Mark | null = null;
  readonly #release: () => void;

  constructor(cuda: ModelMachine, device: CudaDevice) {
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

  msSince(earlier: CudaEvent): number {
    const { mark: start, device } = earlier as ModelEvent;
    if (this.mark?.isReached !== true || start?.isReached !== true) throw new Error('an event was not reached');
    if (device !== this.device) throw new Error('events of two GPUs have no time between them');
    return this.mark.timeMs - start.timeMs;
  }
}

class ModelGraph implements CudaGraph {
  readonly kind = 'graph';
  work: readonly Work[];
  readonly #release: () => void;
  isReleased = false;
  constructor(cuda: ModelMachine, work: readonly Work[]) {
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

export class ModelStream implements CudaStream {
  readonly device: PeerDevice;
  readonly id: number;
  readonly clock: number[] = [];
  readonly #cuda: ModelMachine;
  readonly #queue: Operation[] = [];
  #captured: Work[] | null = null;
  readonly #release: () => void;

  constructor(cuda: ModelMachine, device: PeerDevice) {
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
    const { kernel, values } = launch as PreparedLaunch & { values: number[] };
    if (kernel.name === 'fromHost') {
      const [from = 0, to = 0, bytes = 0] = values;
      this.copy(to, from, bytes);
      return;
    }
    const [w = 0, words = 0, x = 0, y = 0, n = 0] = values;
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
    const recorded = event as ModelEvent;
    if (recorded.device !== this.device)
      throw new CudaError('misuse', 'cuEventRecord', 400, '', 'an event of another GPU');
    const mark = this.#mark();
    recorded.mark = mark;
    this.#queue.push({ kind: 'record', mark });
  }

  #mark(): Mark {
    this.clock[this.id]!++;
    return { isReached: false, clock: [...this.clock].map((sequence) => sequence ?? 0), timeMs: 0 };
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
