/** Options, results and states of functions on GPUs, the same in this process and from the GPU process. */
import type { ColdStartPlan, Timeline } from '../plan/index.ts';
import type { Tensor } from '../tensor/index.ts';

/** The driver's failures, by what they mean for the caller. */
export type CudaErrorKind =
  /** No driver, no library or no device. */
  | 'unavailable'
  /** Device or pinned host memory is used up; everything else goes on working. */
  | 'out-of-memory'
  /** The device fell off the bus or was taken away: this process cannot use it again. */
  | 'device-lost'
  /** A kernel or copy was faulty; every later call fails too, so the process must be restarted. */
  | 'poisoned'
  /** Kernel source does not compile; the message has the log. */
  | 'compilation'
  /** The device or a library lacks something: an architecture, a data type, an epilogue. */
  | 'unsupported'
  /** The engine used the driver wrongly: a bug. */
  | 'misuse';

/**
 * The engine's failures, by what they mean for the caller. After `poisoned`, `device-lost` and `died` the GPU process
 * must be restarted, and the invocation can be tried elsewhere.
 */
export type GpuErrorCode =
  | CudaErrorKind
  /** Weights are not in pinned host memory, or its budget cannot hold them. */
  | 'host-memory'
  /** The GPU process ended while the request was in flight. */
  | 'died'
  /** The caller's signal was aborted. */
  | 'cancelled'
  | 'unknown-function'
  | 'unknown-gpu'
  /** The inputs or the plan do not fit the function. */
  | 'invalid'
  /** A weight could not be read from its file. */
  | 'weights-unreadable';

export class GpuError extends Error {
  override readonly name: string = 'GpuError';
  readonly code: GpuErrorCode;
  constructor(code: GpuErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
  /** Whether the same invocation may succeed in a new GPU process, on the CPU or on another machine. */
  get retriable(): boolean {
    return retriableCodes.has(this.code);
  }
  /** Whether the context is unusable, so that the process must be restarted. */
  get isFatal(): boolean {
    return this.code === 'poisoned' || this.code === 'device-lost';
  }
}

/** @param code for an error that is no GpuError */
export function asGpuError(error: unknown, code: GpuErrorCode = 'misuse'): GpuError {
  if (error instanceof GpuError) return error;
  return new GpuError(code, error instanceof Error ? error.message : String(error));
}

const retriableCodes: ReadonlySet<GpuErrorCode> = new Set([
  'out-of-memory',
  'host-memory',
  'device-lost',
  'poisoned',
  'died',
  'unavailable',
]);

/** Optional abilities of a GPU. The self-test finds those that are missing, and an operator can leave some out. */
export const capabilities = [
  /** Pinned memory whose pages the system makes before the driver pins them. */
  'registered-memory',
  /** Layers executed with their weights in pinned host memory. */
  'host-reads-by-kernels',
  /** Matrix products by cuBLASLt. */
  'products',
  /** Warm runs as captured graphs. */
  'graphs',
  /** Weights over another GPU's link, which passes them on. */
  'helping-gpus',
] as const;
export type Capability = (typeof capabilities)[number];

/** Whether a run found all, some or none of its function's weights on the GPU. */
export type StartKind = 'warm' | 'partial' | 'cold';

/** Milliseconds of one run. */
export interface RunTimings {
  /** From the call to its first submission: waiting for other runs, compilation, and weights that are still on disk. */
  readonly waitMs: number;
  /** From the first copy or launch to the outputs, on the GPU's clock. */
  readonly gpuMs: number;
  /** From the call to the outputs. */
  readonly totalMs: number;
}

export interface RunResult {
  readonly outputs: readonly Tensor[];
  /** With {@link RunOptions.lends}: to be called when the outputs are read no more. */
  readonly release?: () => void;
  readonly start: StartKind;
  /** What it was computed in; left out for 32 bits. The precision of a function may have changed since. */
  readonly precision?: Exclude<ProgramPrecision, 'exact'> | undefined;
  /** Bytes of weights that this run copied to the GPU. */
  readonly loadedBytes: number;
  /** Whether it waited for weights to come from disk to pinned host memory. */
  readonly fromDisk: boolean;
  /** True if one captured graph was launched instead of single kernels. */
  readonly graph: boolean;
  readonly timings: RunTimings;
  /** The time of each layer on the GPUs' clocks; only with {@link RunOptions.trace}. */
  readonly timeline?: Timeline | undefined;
}

export interface RunOptions {
  readonly gpu: number;
  /**
   * Which missing layers are loaded, over which links, and which are read from host memory. Layers that are on the GPU
   * are used there in any case.
   */
  readonly plan: ColdStartPlan;
  /** Record the timeline; costs a few microseconds a layer. */
  readonly trace?: boolean;
  /** The outputs are left in the pinned memory to which the GPU has copied them. */
  readonly lends?: boolean;
  readonly signal?: AbortSignal;
  /**
   * Called when the next run should be ordered, about when this one ends; the outputs follow. A run over GPU and CPU does
   * not call it.
   */
  readonly onLaneFree?: (() => void) | undefined;
}

/** Bytes copied over a GPU's link since the process began: weights, inputs, outputs. */
export interface GpuLinkState {
  readonly gpu: number;
  readonly fromHost: number;
  readonly toHost: number;
  /** Passed on to other GPUs. */
  readonly toPeers: number;
}

/** Of a load without a run. */
export interface LoadResult {
  readonly bytes: number;
  /** Whether it waited for weights that were not in pinned memory yet. */
  readonly fromDisk: boolean;
}

/** What pinned host memory has of a function's weights; the rest is on disk. */
export interface HostTier {
  /** Of layers that are there, or on their way from the disk. */
  readonly bytes: number;
  /** Of those that are there. */
  readonly filledBytes: number;
}

/** What came of an order to read weights from disk into pinned host memory. */
export type Staged =
  | {
      readonly kind: 'staged';
      /** That were read. */
      readonly bytes: number;
      /** Of the read alone, without its turn and its room. */
      readonly ms: number;
      /** The files were in the page cache. */
      readonly isCached: boolean;
    }
  /** There is no room for all of it. */
  | { readonly kind: 'refused'; readonly largestFreeBytes: number };

/**
 * How 32-bit floats are computed; 16-bit values of a model stay as they are.
 *
 * - `exact`: in 32 bits.
 * - `tf32`: matrix products on tensor cores, with 10 bits of mantissa.
 * - `fp16`, `bf16`: weights of products, convolutions and lookups, and activations around products, are kept in 16 bits.
 *   Sums, normalisations and the softmax are computed in 32 bits.
 */
export type ProgramPrecision = 'exact' | 'tf32' | 'fp16' | 'bf16';

export interface ProgramSettings {
  readonly precision: ProgramPrecision;
  /** Layers of models with at most so many bytes of weights are coded without loss where that gains 5%; default: 0. */
  readonly coding?: number;
  /** Layers that stay as they are all the same, by index: the planner has chosen so. */
  readonly asTheyAre?: readonly number[];
}
