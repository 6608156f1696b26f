/** Opens the driver of this machine. */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { given } from '../../tools/index.ts';
import { matmulFunctions, type Calls } from './declarations.ts';
import { NativeCompiler } from './compiler.ts';
import { NativeDevice } from './device.ts';
import { bind, loadLibrary, type LibraryName, type LoadedLibrary } from './libraries.ts';
import { allocateHostMemory, allocateHostMemoryAside } from './memory.ts';
import { pinnerOf, type Pinner } from './pinner.ts';
import { Session } from './session.ts';
import { misuse } from './status.ts';
import { CudaError } from './types.ts';
import type { Cuda, CudaDevice, DeviceAddress, HostMemory, KernelCompiler, LiveCounts, PinnedKind } from './types.ts';
import { Waiter } from './waiter.ts';

export interface CudaOptions {
  /** Its variables say where the libraries are, as in {@link candidates}. Default: this process's. */
  readonly environment?: NodeJS.ProcessEnv;
  /** For compiled kernels. Default: turntable/kernels in the user's cache folder. */
  readonly cacheFolder?: string;
  /**
   * 'everything' (default): a missing compiler or cuBLASLt is an error at once. 'driver': they are loaded at their
   * first use, for callers that only copy.
   */
  readonly need?: 'everything' | 'driver';
}

/** @throws CudaError 'unavailable' if the driver, a GPU or a library is missing, with each file that was tried */
export function openCuda(options: CudaOptions = {}): Cuda {
  const library = loadLibrary('libcuda', given({ environment: options.environment }));
  const session = new Session(library);
  try {
    return new NativeCuda(session, options);
  } catch (error) {
    session.arena.release();
    throw error;
  }
}

class NativeCuda implements Cuda {
  readonly driverVersion: number;
  readonly isEmulated: boolean;
  readonly devices: readonly CudaDevice[];
  readonly #session: Session;
  readonly #options: CudaOptions;
  readonly #devices: readonly NativeDevice[];
  readonly #waiter: Waiter;
  readonly #pinner: Pinner;
  #compiler: NativeCompiler | undefined;
  #matmulCalls: Calls<typeof matmulFunctions> | undefined;
  #released = false;

  constructor(session: Session, options: CudaOptions) {
    this.#session = session;
    this.#options = options;
    const { driver } = session;
    session.check('cuInit', driver.cuInit(0), session.library.file);
    session.check('cuDriverGetVersion', driver.cuDriverGetVersion(session.outAddress()));
    this.driverVersion = session.outInt();
    this.isEmulated = session.emulation !== undefined;
    session.check('cuDeviceGetCount', driver.cuDeviceGetCount(session.outAddress()));
    const count = session.outInt();
    if (count === 0) {
      const message = `the driver ${session.library.file} is there, but no GPU: CUDA_VISIBLE_DEVICES may hide it, or the container was started without it`;
      throw new CudaError('unavailable', 'cuDeviceGetCount', 100, 'CUDA_ERROR_NO_DEVICE', message);
    }
    this.#waiter = new Waiter(session.library.file);
    this.#pinner = pinnerOf(session.library.file);
    const matmulCalls = (): Calls<typeof matmulFunctions> => this.#matmul();
    this.#devices = Array.from(
      { length: count },
      (_, index) => new NativeDevice(session, this.#waiter, index, matmulCalls),
    );
    this.devices = this.#devices;
    if (options.need !== 'driver') {
      this.#compile();
      this.#matmul();
    }
  }

  get compiler(): KernelCompiler {
    return this.#compile();
  }

  get productsVersion(): number {
    return this.#matmul().cublasLtGetVersion();
  }

  allocateHost(bytes: number): HostMemory {
    this.#useAny();
    return allocateHostMemory(this.#session, this.#pinner, bytes);
  }

  async allocateHostAside(bytes: number, kind: PinnedKind): Promise<HostMemory> {
    this.#useAny();
    const usable = this.#registersHostMemory ? kind : 'allocated';
    return await allocateHostMemoryAside(this.#session, this.#pinner, bytes, usable);
  }

  async pinAside(address: DeviceAddress, bytes: number): Promise<HostMemory> {
    this.#useAny();
    if (!this.#registersHostMemory)
      throw misuse('cuMemHostRegister_v2', 'a GPU gives registered memory another address');
    return await allocateHostMemoryAside(this.#session, this.#pinner, bytes, 'given', address);
  }

  get #registersHostMemory(): boolean {
    return this.#devices.every(({ registersHostMemory }) => registersHostMemory);
  }

  /** Makes some context current, an existing one if possible: host memory is usable in all contexts. */
  #useAny(): void {
    const device = this.#devices.find(({ core }) => core.contextIfAny !== undefined) ?? this.#devices[0]!;
    if (this.#released) throw misuse('cuMemHostAlloc', 'the driver was released');
    this.#session.use(device.core.context);
  }

  counts(): LiveCounts {
    return { ...this.#session.counts };
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#waiter.close();
    void this.#pinner.end('the driver was released');
    for (const device of this.#devices) device.release();
    // The arena is kept: objects that are released later still write into their blocks.
  }

  [Symbol.dispose](): void {
    this.release();
  }

  #library(name: LibraryName): LoadedLibrary {
    const { environment } = this.#options;
    return loadLibrary(name, { cudaMajor: Math.floor(this.driverVersion / 1000), ...given({ environment }) });
  }

  #compile(): NativeCompiler {
    if (this.#compiler === undefined) {
      const library = this.#library('libnvrtc');
      const { cacheFolder } = this.#options;
      this.#compiler = new NativeCompiler(library, this.#session.arena, cacheFolder ?? defaultCacheFolder());
    }
    return this.#compiler;
  }

  #matmul(): Calls<typeof matmulFunctions> {
    return (this.#matmulCalls ??= bind(this.#library('libcublasLt'), matmulFunctions));
  }
}

function defaultCacheFolder(): string {
  const caches = process.env['XDG_CACHE_HOME'];
  return join(caches === undefined || caches === '' ? join(homedir(), '.cache') : caches, 'turntable', 'kernels');
}
