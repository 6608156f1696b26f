/**
 * Hybrid execution: one function on a GPU and CPU cores at the same time (Chrion, Yang et al., sections 4 and 5). The
 * CPU's operators are sub-graphs that ONNX Runtime runs in worker threads. All others are one GPU program, whose
 * launches wait for the tensors that they read from the CPU.
 */
import type { DataType, Tensor } from '../../tensor/index.ts';

/** Where each operator runs. Names are those of the operator profile. */
export interface HybridPlan {
  /** Unique among the function's plans. 'gpu' is everything on the GPU. */
  readonly id: string;
  /** Every operator, after those that it reads from. The GPU runs its share in this order. */
  readonly order: readonly string[];
  /**
   * The CPU's operators; all others run on the GPU. A core runs a segment in one call: it begins when all inputs are
   * there, and all outputs are complete at its end. A core runs its segments one at a time, as they become ready.
   */
  readonly segments: readonly HybridSegment[];
}

export interface HybridSegment {
  /** From 1 on. */
  readonly core: number;
  readonly operators: readonly string[];
}

/** What a plan needs on a GPU. */
export interface HybridPromise {
  readonly plan: string;
  /** Layers whose weights the GPU's share reads. They must be resident. */
  readonly layers: readonly number[];
  /** Weights of those layers, which stay on the GPU while the function is resident under this plan. */
  readonly weightBytes: number;
  readonly cores: number;
}

/** A tensor in native memory, which must stay valid until the call has ended. */
export interface HostTensor {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly address: number;
  readonly bytes: number;
}

export interface CpuCall {
  readonly inputs: readonly (HostTensor | Tensor)[];
  /** Written in place. */
  readonly outputs: readonly HostTensor[];
  /** Names of outputs to return by value, because their shapes are not known before. */
  readonly loose: readonly string[];
}

export interface MeasureOperatorsOptions {
  readonly gpu: number;
  /** CPU times are taken with 1 to `cores` busy cores. Default: all cores that the GPU process has for plans. */
  readonly cores?: number;
  /** Timed repetitions of each measurement. Default 5. */
  readonly iterations?: number;
}
