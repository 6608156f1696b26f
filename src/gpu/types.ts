/**
 * What whoever runs functions on GPUs hands over and gets back, in this process or from the GPU process. Nothing here
 * runs.
 */
import type { ColdStartPlan, Timeline } from '../plan/index.ts';
import type { Tensor } from '../tensor/index.ts';
import type { CudaErrorKind } from './driver/types.ts';

/**
 * Every failure of the engine by what it means for the caller. Of the driver's kinds, after `poisoned`, `device-lost`
 * and `died` the GPU process must be started anew, and the invocation can be tried elsewhere.
 */
export type GpuErrorCode =
  | CudaErrorKind
  /** The budget of pinned host memory cannot hold the function's weights. */
  | 'host-memory'
  /** The GPU process ended, or was ended, while this was in flight. */
  | 'died'
  /** The caller's signal was aborted. */
  | 'cancelled'
  | 'unknown-function'
  | 'unknown-gpu'
  /** Inputs or a plan that do not fit the function. */
  | 'invalid'
  /** A weight could not be read from its file. */
  | 'weights-unreadable';

export class GpuError extends Error {
  override readonly name = 'GpuError';
  readonly code: GpuErrorCode;
  constructor(code: GpuErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
  /** Whether another GPU process, machine or processor may do better with the same invocation. */
  get retriable(): boolean {
    return retriableCodes.has(this.code);
  }
}

const retriableCodes: ReadonlySet<GpuErrorCode> = new Set([
  'out-of-memory',
  'host-memory',
  'device-lost',
  'poisoned',
  'died',
  'unavailable',
]);

/** What the engine does only where the GPUs can: a self-test finds out. */
export type Capability =
  /** Pinned memory whose pages the system makes before the driver pins them. */
  | 'registered-memory'
  /** Layers executed with their weights in pinned host memory. */
  | 'host-reads-by-kernels'
  /** Products of the library at all. */
  | 'products'
  /** Warm runs as captured graphs. */
  | 'graphs'
  /** Weights over another GPU's link, which hands them on. */
  | 'helping-gpus';

/** What a run found of its function on the GPU. */
export type StartKind = 'warm' | 'partial' | 'cold';

/** Milliseconds of one run. */
export interface RunTimings {
  /** From the call until its first work was handed to the driver: others' runs, compilation, weights still on disk. */
  readonly waitMs: number;
  /** On the GPU's clock, from the first copy or launch until the outputs were there. */
  readonly gpuMs: number;
  /** From the call to the outputs. */
  readonly totalMs: number;
}

export interface RunResult {
  readonly outputs: readonly Tensor[];
  readonly start: StartKind;
  /** Bytes of weights that this run brought to the GPU. */
  readonly loadedBytes: number;
  /** True where one captured graph was launched instead of the single kernels. */
  readonly graph: boolean;
  readonly timings: RunTimings;
  /** Where the time went, layer by layer, measured on the GPUs' clocks; only when asked for. */
  readonly timeline?: Timeline;
}

export interface RunOptions {
  readonly gpu: number;
  /**
   * Decides what is loaded, over which links, and what is read from host memory. Layers that are on the GPU are used
   * there in any case.
   */
  readonly plan: ColdStartPlan;
  /** Have the timeline recorded; costs some microseconds a layer. */
  readonly trace?: boolean;
  readonly signal?: AbortSignal;
}

/** What one GPU has of one function. */
export interface ResidencyState {
  readonly key: string;
  readonly gpu: number;
  /** Layers with weights in the GPU's memory, those on their way included. */
  readonly layers: readonly number[];
  readonly bytes: number;
  /** Whether copies of it are still under way. */
  readonly loading: boolean;
}

/** Bytes of one GPU's memory, by what they hold. */
export interface GpuMemoryState {
  readonly gpu: number;
  readonly limitBytes: number;
  readonly weightBytes: number;
  /** Activations and workspace of the one running program. */
  readonly scratchBytes: number;
  /** Constants of compiled programs. */
  readonly constantBytes: number;
  /** Weights passing through on their way to another GPU. */
  readonly stagingBytes: number;
  readonly freeBytes: number;
  readonly largestFreeBytes: number;
}

/** Bytes that copies have moved over a GPU's link since the process began: weights, inputs, outputs. */
export interface GpuLinkState {
  readonly gpu: number;
  readonly fromHost: number;
  readonly toHost: number;
  /** Handed on to other GPUs. */
  readonly toPeers: number;
}

/** Where a function's weights are on the host. */
export type HostTier =
  | { readonly tier: 'disk' }
  | { readonly tier: 'filling'; readonly filledBytes: number; readonly bytes: number }
  | { readonly tier: 'host'; readonly bytes: number }
  | { readonly tier: 'failed'; readonly message: string };

export interface HostStoreState {
  readonly budgetBytes: number;
  /** Pinned, whether used or not. */
  readonly pinnedBytes: number;
  /** Of filled and filling functions. */
  readonly usedBytes: number;
  readonly functions: readonly { readonly key: string; readonly host: HostTier }[];
}
