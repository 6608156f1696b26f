/**
 * Streams that remember which stream has waited for which, so that a redundant wait is never submitted. That saves
 * calls, and makes every remaining wait necessary (a test removes each in turn and sees a race).
 */
import { getOrMake } from '../../tools/index.ts';
import { CudaError, type CudaDevice, type CudaEvent, type CudaStream } from '../driver/types.ts';

/** By stream, its latest fence that is known to lie before. */
type Clock = number[];

/** A point in a stream that others can wait for. Once passed, it holds no event any more. */
export class Fence {
  readonly stream: OrderedStream;
  /** Number of the fence in its stream. */
  readonly sequence: number;
  readonly clock: Readonly<Clock>;
  /** Null once the point was passed. */
  event: CudaEvent | null;
  constructor(stream: OrderedStream, sequence: number, clock: Readonly<Clock>, event: CudaEvent) {
    this.stream = stream;
    this.sequence = sequence;
    this.clock = clock;
    this.event = event;
  }

  get passed(): boolean {
    return this.event === null;
  }

  /** Whether the other's stream has waited for this one, directly or through others. */
  isBefore({ clock }: Fence): boolean {
    return (clock[this.stream.id] ?? 0) >= this.sequence;
  }
}

export interface StreamsOptions {
  /**
   * For the engine's tests: called before each wait, in order; true omits the wait. The bookkeeping continues as if it
   * had been submitted.
   */
  readonly dropWait?: (wait: { readonly index: number; readonly by: string; readonly of: string }) => boolean;
}

/** All streams of the engine, and their events, which are reused. */
export class Streams implements Disposable {
  readonly #options: StreamsOptions;
  readonly #streams: OrderedStream[] = [];
  readonly #idleEvents = new Map<CudaDevice, CudaEvent[]>();
  readonly #events: CudaEvent[] = [];
  /** By stream, in order: fences that may not be passed yet. */
  readonly #open: Fence[][] = [];
  #waits = 0;

  constructor(options: StreamsOptions = {}) {
    this.#options = options;
  }

  get waits(): number {
    return this.#waits;
  }

  open(device: CudaDevice, name: string, priority: 'high' | 'normal'): OrderedStream {
    const stream = new OrderedStream(this, this.#streams.length, `${name} of GPU ${device.index}`, device, priority);
    this.#streams.push(stream);
    this.#open.push([]);
    return stream;
  }

  /** A fence at the current end of a stream. */
  fence(stream: OrderedStream, clock: Clock): Fence {
    const fence = new Fence(stream, clock[stream.id]!, [...clock], this.#recorded(stream));
    this.#open[stream.id]!.push(fence);
    return fence;
  }

  /**
   * An event at the end of a stream. On failure the driver is asked once more: without an event it is unknown which
   * bytes are still being read and written.
   */
  #recorded(stream: OrderedStream): CudaEvent {
    try {
      return this.#record(stream);
    } catch (error) {
      if (!(error instanceof CudaError) || error.isFatal) throw error;
    }
    try {
      return this.#record(stream);
    } catch (error) {
      if (!(error instanceof CudaError)) throw error;
      const { call, status, statusName, message } = error;
      throw new CudaError('poisoned', call, status, statusName, `the end of ${stream.name} cannot be told: ${message}`);
    }
  }

  #record({ device, cuda }: OrderedStream): CudaEvent {
    const idle = getOrMake(this.#idleEvents, device, (): CudaEvent[] => []);
    if (idle.length === 0) {
      idle.push(device.createEvent());
      this.#events.push(idle[0]!);
    }
    cuda.record(idle.at(-1)!);
    return idle.pop()!;
  }

  submitWait(stream: OrderedStream, fence: Fence): void {
    const index = this.#waits++;
    const isDropped = this.#options.dropWait?.({ index, by: stream.name, of: fence.stream.name }) ?? false;
    if (!isDropped && fence.event !== null) stream.cuda.wait(fence.event);
  }

  /** Marks everything before a passed fence as passed, without a driver call. */
  complete({ clock }: Fence): void {
    for (const [id, sequence] of clock.entries()) {
      const open = this.#open[id]!;
      while (open[0] !== undefined && open[0].sequence <= sequence) {
        const { stream, event } = open[0];
        if (event !== null) this.#idleEvents.get(stream.device)!.push(event);
        open.shift()!.event = null;
      }
    }
  }

  [Symbol.dispose](): void {
    for (const stream of this.#streams) stream.cuda.release();
    for (const event of this.#events) event.release();
  }
}

export class OrderedStream {
  readonly id: number;
  readonly name: string;
  readonly device: CudaDevice;
  /** For copies and launches; waits and records go through this class. */
  readonly cuda: CudaStream;
  readonly #streams: Streams;
  readonly #clock: Clock = [];

  constructor(streams: Streams, id: number, name: string, device: CudaDevice, priority: 'high' | 'normal') {
    this.#streams = streams;
    this.id = id;
    this.name = name;
    this.device = device;
    this.cuda = device.createStream({ priority });
    this.#clock[id] = 0;
  }

  /** The end of the work submitted to this stream so far. */
  fence(): Fence {
    this.#clock[this.id] = (this.#clock[this.id] ?? 0) + 1;
    for (let id = 0; id < this.#clock.length; id++) this.#clock[id] ??= 0;
    return this.#streams.fence(this, this.#clock);
  }

  /** Whether later work of this stream comes after the fence anyway. */
  isBehind(fence: Fence | null): boolean {
    if (fence === null || fence.passed || fence.stream === this) return true;
    return (this.#clock[fence.stream.id] ?? 0) >= fence.sequence;
  }

  /** Later work of this stream comes after the fence. Returns whether that takes a wait. */
  wait(fence: Fence | null): boolean {
    if (fence === null || this.isBehind(fence)) return false;
    this.#streams.submitWait(this, fence);
    for (const [id, sequence] of fence.clock.entries()) {
      if ((this.#clock[id] ?? 0) < sequence) this.#clock[id] = sequence;
    }
    return true;
  }

  /** Waits for all of them, the latest of each stream first, which makes the others redundant. */
  waitForAll(fences: readonly Fence[]): void {
    if (fences.length > 1) fences = fences.toSorted((a, b) => b.sequence - a.sequence);
    for (const fence of fences) this.wait(fence);
  }

  /** Resolves when all work submitted so far has ended, and marks earlier fences as passed. */
  async finished(): Promise<void> {
    const fence = this.fence();
    await this.cuda.finished();
    this.#streams.complete(fence);
  }
}
