/** State that all objects of an opened driver share: bound functions, native memory, the current context, counts. */
import { driverFunctions, emulationFunctions, type Calls } from './declarations.ts';
import { bind, bindIfPresent, type LoadedLibrary } from './libraries.ts';
import { NativeArena, readInteger64, readTextAt, type NativeBlock } from './native-memory.ts';
import { driverError, isBeyondRelease } from './status.ts';
import type { CudaError, DeviceMemory, LiveCounts } from './types.ts';

/** Device memory, with the context that owns it. */
export interface ContextMemory extends Pick<DeviceMemory, 'address' | 'bytes'> {
  readonly context: number;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

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
    const room = this.arena.allocate(16);
    const status = this.driver.cuMemGetInfo_v2(room.address, room.address + 8);
    room.release();
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
