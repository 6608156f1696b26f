/**
 * Hybrid execution: one function's graph over a GPU and CPU cores (Chrion, Yang et al., sections 4 and 5). Runs of
 * operators on the CPU are sub-graphs of ONNX Runtime in worker threads, everything else is one program on the GPU
 * whose launches wait for what crosses. Nothing here runs.
 */
import type { DataType, Tensor } from '../../tensor/index.ts';

/** Which operators run where, by the names that the operator profile has for them. */
export interface HybridPlan {
  /** Unique among the function's plans. 'gpu' is everything on the GPU. */
  readonly id: string;
  /** Every operator, each after what it takes: the GPU executes its share in this order. */
  readonly order: readonly string[];
  /**
   * What runs on the CPU: each a run of operators that one core executes by one call, its inputs all there before and
   * its outputs all there after. A core executes its segments in the order in which they stand here. Operators in none
   * of them run on the GPU.
   */
  readonly segments: readonly HybridSegment[];
}

export interface HybridSegment {
  /** From 1 on. */
  readonly core: number;
  readonly operators: readonly string[];
}

/** What a plan takes of a GPU. */
export interface HybridPromise {
  readonly plan: string;
  /** Layers of the function's weights that the GPU's share reads: what has to be resident. */
  readonly layers: readonly number[];
  /** Of those layers: what stays on the GPU as long as the function is resident under this plan. */
  readonly weightBytes: number;
  /** Of the running program, in memory that all functions of the GPU share. */
  readonly arenaBytes: number;
  readonly workspaceBytes: number;
  readonly constantBytes: number;
  readonly launches: number;
  readonly cores: number;
  /** Tensors that cross between host and GPU in a run, the function's own inputs and outputs left out. */
  readonly crossings: { readonly toGpu: number; readonly toCpu: number; readonly bytes: number };
}

/** A sub-graph for one core. */
export interface CpuPartSpec {
  /** Absolute path of an ONNX file; equal paths are equal sub-graphs, and a core opens a session for each only once. */
  readonly modelPath: string;
}

/** A tensor in memory outside JavaScript's heap, which lives until the call that uses it has ended. */
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
  /** Outputs to be given by value. */
  readonly loose: readonly string[];
}

export interface CpuCallResult {
  /** Tensors whose shapes only their makers know: they travel by value. */
  readonly loose: readonly Tensor[];
  /** The call of ONNX Runtime alone. */
  readonly runMs: number;
}

export interface CpuPart {
  /** @throws GpuError 'invalid' when the run fails, 'died' when the thread ended */
  run(call: CpuCall): Promise<CpuCallResult>;
  /** Closes the session once nobody else has it open. */
  release(): Promise<void>;
}

export interface MeasureOperatorsOptions {
  readonly gpu: number;
  /**
   * Times on the CPU are taken while 1, 2, ... so many cores are at work. Default: all that the process has for plans.
   */
  readonly cores?: number;
  /** Timed repetitions of each measurement. Default 5. */
  readonly iterations?: number;
}
