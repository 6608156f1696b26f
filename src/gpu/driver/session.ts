/**
 * What the driver's objects share: the driver itself ({@link Session}), the device that they are on ({@link DeviceCore}),
 * and that each is released once ({@link Owned}, {@link DriverHandle}).
 */
import { driverFunctions, emulationFunctions, type Calls } from './declarations.ts';
import { bind, bindIfPresent, type LoadedLibrary } from './libraries.ts';
import { NativeArena, readInteger64, readTextAt, type NativeBlock } from './native-memory.ts';
import { driverError, isBeyondRelease, misuse } from './status.ts';
import type { CudaError, DeviceMemory, LiveCounts } from './types.ts';
import type { Waiter } from './waiter.ts';

/** Device memory, with the context that owns it. */
export interface ContextMemory extends Pick<DeviceMemory, 'address' | 'bytes'> {
  readonly context: number;
}

const withoutTiming = 2;

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/** Bound functions, native memory, the current context, counts. */
export class Session {
  readonly library: LoadedLibrary;
  readonly driver: Calls<typeof driverFunctions>;
  readonly emulation: Calls<typeof emulationFunctions> | undefined;
  readonly arena = new NativeArena();
  /** Device memory that was not freed yet. */
  readonly memories = new Set<ContextMemory>();
  /** The out-parameters of the current call. The next call overwrites them. */
  readonly out: NativeBlock;
  readonly counts: Mutable<LiveCounts> = {
    deviceBytes: 0,
    hostBytes: 0,
    allocations: 0,
    streams: 0,
    events: 0,
    modules: 0,
    graphs: 0,
    matmuls: 0,
  };
  #currentContext = 0;

  constructor(library: LoadedLibrary) {
    this.library = library;
    this.driver = bind(library, driverFunctions);
    this.emulation = bindIfPresent(library, emulationFunctions);
    this.out = this.arena.allocate(4096);
  }

  /** @throws CudaError with the driver's own name for the status */
  check(call: string, status: number, about?: string): void {
    if (status !== 0) throw this.error(call, status, about);
  }

  error(call: string, status: number, about?: string): CudaError {
    return driverError(call, status, this.#nameOf(status), about);
  }

  /**
   * Checks a call that frees something. If the device is lost or poisoned, there is nothing left to free, and an error
   * here would hide the first one.
   */
  checkRelease(call: string, status: number): void {
    if (status === 0) return;
    const error = this.error(call, status);
    if (!isBeyondRelease(error.code)) throw error;
  }

  /**
   * The error of the current context, if it has one. After a fault every later call fails, and a library's status does
   * not name the fault.
   */
  readonly contextError = (): CudaError | undefined => {
    const out = this.arena.allocate(16);
    const status = this.driver.cuMemGetInfo_v2(out.address, out.address + 8);
    out.release();
    return status === 0 ? undefined : this.error('cuMemGetInfo_v2', status);
  };

  /** Makes a context current for this thread. The driver is called only if another one was current. */
  use(context: number): void {
    if (context === this.#currentContext) return;
    this.check('cuCtxSetCurrent', this.driver.cuCtxSetCurrent(context));
    this.#currentContext = context;
  }

  get currentContext(): number {
    return this.#currentContext;
  }

  /** To be called when a context ends: the driver may use its handle again for a new one. */
  forgetContext(): void {
    this.#currentContext = 0;
  }

  /** The 64-bit result of the last call, at `slot` of {@link out}. */
  outInteger(slot = 0): number {
    return readInteger64(this.out.data, slot * 8);
  }

  outInt(slot = 0): number {
    return this.out.data.getInt32(slot * 8, true);
  }

  /** The address of the result at `slot`. */
  outAddress(slot = 0): number {
    return this.out.address + slot * 8;
  }

  #nameOf(status: number): string {
    // Not in `out`: the caller may still read the results of the failed call.
    using slot = this.arena.allocate(8);
    if (this.driver.cuGetErrorName(status, slot.address) !== 0) return `CUDA_ERROR_${status}`;
    const text = readInteger64(slot.data, 0);
    return text === 0 ? `CUDA_ERROR_${status}` : readTextAt(text);
  }
}

/** One device: its context, made at the first use, and events for reuse. */
export class DeviceCore {
  readonly session: Session;
  readonly waiter: Waiter;
  /** The driver's number for the device. */
  readonly ordinal: number;
  readonly copied = { fromHost: 0, toHost: 0, toPeers: 0 };
  readonly #waitEvents: number[] = [];
  #context = 0;
  #released = false;

  constructor(session: Session, waiter: Waiter, ordinal: number) {
    this.session = session;
    this.waiter = waiter;
    this.ordinal = ordinal;
  }

  /**
   * The primary context, which the libraries share. It is made at the first use, because it costs hundreds of
   * milliseconds and megabytes.
   */
  get context(): number {
    if (this.#context !== 0) return this.#context;
    const { session } = this;
    if (this.#released) throw session.error('cuDevicePrimaryCtxRetain', 4, `device ${this.ordinal} was released`);
    const status = session.driver.cuDevicePrimaryCtxRetain(session.outAddress(), this.ordinal);
    session.check('cuDevicePrimaryCtxRetain', status, `device ${this.ordinal}`);
    this.#context = session.outInteger();
    return this.#context;
  }

  /** Undefined before the first use. */
  get contextIfAny(): number | undefined {
    return this.#context === 0 ? undefined : this.#context;
  }

  /** The handle of a new event. The caller counts it, or keeps it for itself. */
  newEvent(timing: boolean): number {
    const { session } = this;
    session.use(this.context);
    session.check('cuEventCreate', session.driver.cuEventCreate(session.outAddress(), timing ? 0 : withoutTiming));
    return session.outInteger();
  }

  takeWaitEvent(): number {
    return this.#waitEvents.pop() ?? this.newEvent(false);
  }

  giveWaitEvent(event: number): void {
    // The events ended with the context.
    if (!this.#released) this.#waitEvents.push(event);
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    if (this.#context === 0) return;
    const { session } = this;
    session.use(this.#context);
    for (const event of this.#waitEvents) {
      session.checkRelease('cuEventDestroy_v2', session.driver.cuEventDestroy_v2(event));
    }
    this.#waitEvents.length = 0;
    session.forgetContext();
    this.#context = 0;
    const status = session.driver.cuDevicePrimaryCtxRelease_v2(this.ordinal);
    session.checkRelease('cuDevicePrimaryCtxRelease_v2', status);
  }
}

/** A resource that is freed once: releasing it again does nothing. */
export abstract class Owned {
  #isReleased = false;

  get released(): boolean {
    return this.#isReleased;
  }

  release(): void {
    if (this.markReleased()) this.giveBack();
  }

  /** False if it was released before. */
  protected markReleased(): boolean {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    return isFirst;
  }

  protected abstract giveBack(): void;

  [Symbol.dispose](): void {
    this.release();
  }
}

/** The call that destroys an object, and the words for the error of a use after that. */
const kinds = {
  events: { destroy: 'cuEventDestroy_v2', use: 'cuEventRecord', one: 'an event' },
  graphs: { destroy: 'cuGraphExecDestroy', use: 'cuGraphLaunch', one: 'a graph' },
  streams: { destroy: 'cuStreamDestroy_v2', use: 'cuStreamSynchronize', one: 'a stream' },
  modules: { destroy: 'cuModuleUnload', use: 'cuModuleGetFunction', one: 'a module' },
} as const;

/** An object with a handle: an event, graph, stream or module. */
export abstract class DriverHandle extends Owned {
  protected readonly session: Session;
  protected readonly context: number;
  readonly #kind: keyof typeof kinds;
  readonly #handle: number;

  protected constructor(session: Session, context: number, kind: keyof typeof kinds, handle: number) {
    super();
    this.session = session;
    this.context = context;
    this.#kind = kind;
    this.#handle = handle;
    session.counts[kind]++;
  }

  /** @throws CudaError 'misuse' after the release */
  get handle(): number {
    const { use, one } = kinds[this.#kind];
    if (this.released) throw misuse(use, `${one} was used after its release`);
    return this.#handle;
  }

  protected giveBack(): void {
    const { session, context } = this;
    session.use(context);
    const { destroy } = kinds[this.#kind];
    const status = session.driver[destroy](this.#handle);
    session.counts[this.#kind]--;
    session.checkRelease(destroy, status);
  }
}
