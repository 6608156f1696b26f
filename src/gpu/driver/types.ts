/**
 * The seam between the engine and the CUDA driver, in the project's words. Nothing here runs. Addresses and handles are
 * plain numbers: device addresses have 47 bits, so they are exact. Every method throws {@link CudaError} when the
 * driver refuses.
 */

/** An address that kernels of a device can use: in its memory, a peer's, or in pinned host memory that is mapped. */
export type DeviceAddress = number;

/** What a failure means for whoever catches it; the driver's own name and number are in the error beside it. */
export type CudaErrorKind =
  /** No driver, no library or no device. */
  | 'unavailable'
  /** Device or pinned host memory is used up; everything else goes on. */
  | 'out-of-memory'
  /** The device fell off the bus, or was taken away: nothing on it can be used again by this process. */
  | 'device-lost'
  /** A kernel went wrong; every later call in this process fails too, so the process must be restarted. */
  | 'poisoned'
  /** Kernel source that does not compile; the log is in the message. */
  | 'compilation'
  /** The libraries lack what was asked for (an architecture, a data type, an epilogue). */
  | 'unsupported'
  /** A misuse of the driver: a defect of the engine. */
  | 'misuse';

export class CudaError extends Error {
  override readonly name = 'CudaError';
  readonly kind: CudaErrorKind;
  /** The call that failed: 'cuMemAlloc_v2'. */
  readonly call: string;
  /** The driver's own number and name for it: 2, 'CUDA_ERROR_OUT_OF_MEMORY'. */
  readonly status: number;
  readonly statusName: string;
  constructor(kind: CudaErrorKind, call: string, status: number, statusName: string, message: string) {
    super(message);
    this.kind = kind;
    this.call = call;
    this.status = status;
    this.statusName = statusName;
  }
}

/** Something of the driver's that must be given back. Freeing twice is allowed and does nothing. */
export interface Releasable extends Disposable {
  release(): void;
}

/** The driver of a machine, and its devices. */
export interface Cuda extends Releasable {
  /** 13000 for CUDA 13.0. */
  readonly driverVersion: number;
  /** Whether its GPUs are emulated on the CPU, for tests: results are real then, times mean nothing. */
  readonly isEmulated: boolean;
  readonly devices: readonly CudaDevice[];
  /** Kernels from source; undefined only where no NVRTC was found and `open` was told that none is needed. */
  readonly compiler: KernelCompiler;
  /** 130100 for cuBLASLt 13.1. */
  readonly productsVersion: number;
  /** Page-locked host memory, mapped into every device at the same address. */
  allocateHost(bytes: number): HostMemory;
  /** The same on another thread, while this one goes on. */
  allocateHostAside(bytes: number, kind: PinnedKind): Promise<HostMemory>;
  /** What is live now, by kind: all zero once everything was released. */
  counts(): LiveCounts;
}

export interface LiveCounts {
  readonly deviceBytes: number;
  readonly hostBytes: number;
  readonly allocations: number;
  readonly streams: number;
  readonly events: number;
  readonly modules: number;
  readonly graphs: number;
  readonly matmuls: number;
}

export interface KernelCompiler {
  /** 'NVRTC 13.0'; part of every cache key. */
  readonly version: string;
  /**
   * Compiles one translation unit, the prelude included, for a device's architecture. From the disk cache where it was
   * compiled before.
   */
  compile(source: string, device: CudaDevice): Promise<Uint8Array>;
}

/**
 * How pinned memory is made: by the driver, or by the system and registered with the driver. GPUs that cannot have the
 * latter have the former.
 */
export type PinnedKind = 'allocated' | 'registered';

export interface HostMemory extends Releasable {
  readonly bytes: number;
  /** The address that kernels of every device can read. */
  readonly address: DeviceAddress;
  /**
   * The same bytes for JavaScript. Views over 1 GiB are split by whoever asks: `view(offset, length)`. Invalid once
   * released.
   */
  view(byteOffset: number, byteLength: number): Uint8Array;
  /** Gives it back on another thread. */
  releaseAside(): Promise<void>;
}

export interface DeviceMemory extends Releasable {
  readonly bytes: number;
  readonly address: DeviceAddress;
}

/** Bytes of the copies that were submitted so far; kernels that read another memory are not among them. */
export interface CopiedBytes {
  readonly fromHost: number;
  readonly toHost: number;
  readonly toPeers: number;
}

export interface CudaDevice {
  readonly index: number;
  readonly name: string;
  /** 'GPU-' and a UUID. */
  readonly uuid: string;
  /** '0000:17:00.0'. */
  readonly pciBusId: string;
  readonly computeCapability: { readonly major: number; readonly minor: number };
  readonly multiprocessors: number;
  readonly totalBytes: number;
  /** By the streams of this device. */
  readonly copied: CopiedBytes;
  memory(): { readonly freeBytes: number; readonly totalBytes: number };
  /** Aligned to 256 bytes at least. */
  allocate(bytes: number): DeviceMemory;
  createStream(options?: { readonly priority?: 'high' | 'normal' }): CudaStream;
  createEvent(options?: { readonly timing?: boolean }): CudaEvent;
  loadModule(image: Uint8Array): CudaModule;
  /** Whether kernels and copies of this device can reach the other's memory directly. */
  canAccessPeer(other: CudaDevice): boolean;
  /** Lets this device reach the other's memory. Asking again does nothing. */
  enablePeerAccess(other: CudaDevice): void;
  /** Waits for everything that was submitted on this device. */
  synchronize(): void;
  /**
   * Describes a matrix product once; running it is then one call. @throws CudaError 'unsupported' when the library has
   * no algorithm
   */
  createMatmul(description: MatmulDescription): Matmul;
  /**
   * Has the driver of a sub-allocated range know its extent, where it checks accesses (the emulated one); else nothing.
   */
  declareRange(address: DeviceAddress, bytes: number): void;
  forgetRange(address: DeviceAddress): void;
}

/** Work in order. All submissions return at once. */
export interface CudaStream extends Releasable {
  readonly device: CudaDevice;
  /**
   * Host to device, device to host, device to device or to a peer, by what the addresses are. Host addresses must be
   * pinned.
   */
  copy(destination: DeviceAddress, source: DeviceAddress, bytes: number): void;
  fill(destination: DeviceAddress, byteValue: number, bytes: number): void;
  launch(launch: PreparedLaunch): void;
  matmul(matmul: Matmul, operands: MatmulOperands): void;
  /** Later work of this stream waits for the event's latest record, which must have been submitted before. */
  wait(event: CudaEvent): void;
  record(event: CudaEvent): void;
  /** True when all submitted work has ended. */
  idle(): boolean;
  /** Blocks this thread. */
  synchronize(): void;
  /** Resolves when everything submitted so far has ended, without blocking the event loop. */
  finished(): Promise<void>;
  /** Records what `submit` submits to this stream instead of running it. */
  /**
   * @param earlier takes on what was captured, where the driver can do that: kernels and copies in the same order, with
   *   other addresses. Then it is what is returned, and runs of it that were launched before are not touched.
   */
  capture(submit: () => void, earlier?: CudaGraph): CudaGraph;
  launchGraph(graph: CudaGraph): void;
}

export interface CudaEvent extends Releasable {
  readonly device: CudaDevice;
  /** True when the latest record has been reached. */
  reached(): boolean;
  /** Milliseconds between two timing events that were both reached. */
  msSince(earlier: CudaEvent): number;
}

export interface CudaGraph extends Releasable {
  readonly kind: 'graph';
}

export interface CudaModule extends Releasable {
  kernel(name: string): CudaKernel;
}

export interface CudaKernel {
  readonly name: string;
  /** Lays the arguments out in native memory once, so that a launch is one cheap call. */
  prepare(shape: LaunchShape, parameters: readonly ParameterType[]): PreparedLaunch;
}

export interface LaunchShape {
  readonly grid: readonly [number, number, number];
  readonly block: readonly [number, number, number];
  /** Dynamic shared memory. */
  readonly sharedBytes: number;
}

export type ParameterType = 'pointer' | 'i32' | 'u32' | 'i64' | 'f32';

export interface PreparedLaunch extends Releasable {
  readonly kernel: CudaKernel;
  readonly shape: LaunchShape;
  set(index: number, value: number): void;
}

export type MatmulType = 'f32' | 'f16' | 'bf16';
export type MatmulEpilogue = 'none' | 'bias' | 'relu' | 'relu-bias' | 'gelu-tanh' | 'gelu-tanh-bias';

/**
 * Row-major D[batch,m,n] = epilogue(alpha * A[batch,m,k] x B[batch,k,n] + beta * C). A bias has n values, one for each
 * column of D. The implementation turns it into the library's column-major form.
 */
export interface MatmulDescription {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  /** A is stored [k,m], B is stored [n,k]. */
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  /** Elements from one row to the next as stored. */
  readonly lda: number;
  readonly ldb: number;
  readonly ldd: number;
  /** Elements from one batch item to the next; 0: all share it. */
  readonly strideA: number;
  readonly strideB: number;
  readonly strideD: number;
  /** Of an epilogue's bias; 0 unless given. */
  readonly strideBias?: number;
  readonly typeA: MatmulType;
  readonly typeB: MatmulType;
  readonly typeD: MatmulType;
  /** Of 32-bit products: exact ones, or on tensor cores with 10 bits of mantissa. */
  readonly tf32: boolean;
  readonly alpha: number;
  /** 0, or 1 with C = D in place. */
  readonly beta: number;
  readonly epilogue: MatmulEpilogue;
  /** Bytes of scratch memory that the algorithm may use. */
  readonly workspaceBytesMax: number;
}

export interface Matmul extends Releasable {
  readonly description: MatmulDescription;
  /** Of the chosen algorithm. */
  readonly workspaceBytes: number;
}

export interface MatmulOperands {
  readonly a: DeviceAddress;
  readonly b: DeviceAddress;
  readonly d: DeviceAddress;
  /** n values of D's type, where the epilogue has a bias; else 0. */
  readonly bias: DeviceAddress;
  readonly workspace: DeviceAddress;
}
