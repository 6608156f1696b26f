/**
 * The CUDA driver as the engine sees it. Addresses are plain numbers, which hold their 47 bits exactly. Every method
 * throws {@link CudaError} when the driver refuses.
 */

import { GpuError, type CudaErrorKind } from '../types.ts';

/** An address that kernels of a device can use: in its memory, a peer's memory, or mapped pinned host memory. */
export type DeviceAddress = number;

export class CudaError extends GpuError {
  override readonly name: string = 'CudaError';
  /** The call that failed: 'cuMemAlloc_v2'. */
  readonly call: string;
  /** The library's number and name for the failure: 2, 'CUDA_ERROR_OUT_OF_MEMORY'. */
  readonly status: number;
  readonly statusName: string;
  constructor(kind: CudaErrorKind, call: string, status: number, statusName: string, message: string) {
    super(kind, message);
    this.call = call;
    this.status = status;
    this.statusName = statusName;
  }
}

/** A resource of the driver that must be freed. Releasing it again does nothing. */
export interface Releasable extends Disposable {
  release(): void;
}

/** The driver of a machine, and its devices. */
export interface Cuda extends Releasable {
  /** 13000 for CUDA 13.0. */
  readonly driverVersion: number;
  /** Whether the GPUs are emulated on the CPU, for tests: results are real, times mean nothing. */
  readonly isEmulated: boolean;
  readonly devices: readonly CudaDevice[];
  /** @throws CudaError 'unavailable' if the driver was opened without NVRTC and none is found */
  readonly compiler: KernelCompiler;
  /** 130100 for cuBLASLt 13.1. */
  readonly productsVersion: number;
  /** Page-locked host memory, mapped into every device at the same address. */
  allocateHost(bytes: number): HostMemory;
  /** The same on another thread. */
  allocateHostAside(bytes: number, kind: PinnedKind): Promise<HostMemory>;
  /** Pins whole pages of memory that others have mapped and keep mapped, on another thread. */
  pinAside(address: DeviceAddress, bytes: number): Promise<HostMemory>;
  /** Live objects: all zero once everything was released. */
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
   * Compiles the prelude and `source` for a device's architecture, or reads the result of an earlier compilation from
   * the disk cache.
   */
  compile(source: string, device: CudaDevice): Promise<Uint8Array>;
}

/** Pinned memory that the driver allocates, or that the operating system allocates and the driver registers. */
export type PinnedKind = 'allocated' | 'registered';

export interface HostMemory extends Releasable {
  readonly bytes: number;
  /** The address that kernels of every device can read. */
  readonly address: DeviceAddress;
  /** The bytes for JavaScript, at most 1 GiB a view. Invalid after the release. */
  view(byteOffset: number, byteLength: number): Uint8Array;
  /** Frees the memory on another thread. */
  releaseAside(): Promise<void>;
}

export interface DeviceMemory extends Releasable {
  readonly bytes: number;
  readonly address: DeviceAddress;
}

/** Bytes of the copies submitted so far, without what kernels read from host or peer memory. */
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
  /** By this device's streams. */
  readonly copied: CopiedBytes;
  memory(): { readonly freeBytes: number; readonly totalBytes: number };
  /** Aligned to 256 bytes at least. */
  allocate(bytes: number): DeviceMemory;
  createStream(options?: { readonly priority?: 'high' | 'normal' }): CudaStream;
  createEvent(options?: { readonly timing?: boolean }): CudaEvent;
  loadModule(image: Uint8Array): CudaModule;
  /** Whether kernels and copies of this device can reach the other's memory directly. */
  canAccessPeer(other: CudaDevice): boolean;
  /** Lets this device reach the other's memory. A second call does nothing. */
  enablePeerAccess(other: CudaDevice): void;
  /**
   * Prepares a matrix product, so that running it is one call. @throws CudaError 'unsupported' if the library has no
   * algorithm
   */
  createMatmul(description: MatmulDescription): Matmul;
  /** Tells the emulated driver the extent of a sub-allocation, so that it can check accesses; a real one ignores it. */
  declareRange(address: DeviceAddress, bytes: number): void;
  forgetRange(address: DeviceAddress): void;
}

/** Runs work in order. Submissions return at once. */
export interface CudaStream extends Releasable {
  /** Between host, device and peer: the addresses decide. Host addresses must be pinned. */
  copy(destination: DeviceAddress, source: DeviceAddress, bytes: number): void;
  fill(destination: DeviceAddress, byteValue: number, bytes: number): void;
  launch(launch: PreparedLaunch): void;
  matmul(matmul: Matmul, operands: MatmulOperands): void;
  /** Later work of this stream waits for the event's latest record so far. */
  wait(event: CudaEvent): void;
  record(event: CudaEvent): void;
  /** Blocks this thread. */
  synchronize(): void;
  /** Resolves when everything submitted so far has ended, without blocking the event loop. */
  finished(): Promise<void>;
  /**
   * Records what `submit` submits to this stream instead of running it.
   *
   * @param earlier is updated and returned if only addresses differ: the same kernels and copies in the same order.
   *   Launches of it that are under way keep their addresses.
   */
  capture(submit: () => void, earlier?: CudaGraph): CudaGraph;
  launchGraph(graph: CudaGraph): void;
}

export interface CudaEvent extends Releasable {
  /** Milliseconds between two timing events; both must have been reached. */
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
  /** Lays the arguments out in native memory, so that a launch is one cheap call. */
  prepare(shape: LaunchShape, parameters: readonly ParameterType[]): PreparedLaunch;
}

export interface LaunchShape {
  readonly grid: readonly [number, number, number];
  readonly block: readonly [number, number, number];
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
  /** Elements from one batch item to the next; 0: all items share the matrix. */
  readonly strideA: number;
  readonly strideB: number;
  readonly strideD: number;
  /** The same of the bias. Default 0. */
  readonly strideBias?: number;
  readonly typeA: MatmulType;
  readonly typeB: MatmulType;
  readonly typeD: MatmulType;
  /** Compute products of f32 operands with 10 bits of mantissa, on tensor cores. */
  readonly tf32: boolean;
  readonly alpha: number;
  /** 0, or 1 to add to D in place (C = D). */
  readonly beta: number;
  readonly epilogue: MatmulEpilogue;
  /** Limit for the scratch memory of the algorithm. */
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
  /** n values of D's type if the epilogue has a bias; else 0. */
  readonly bias: DeviceAddress;
  readonly workspace: DeviceAddress;
}
