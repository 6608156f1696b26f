/** What a core's thread is asked. */
import type { Tensor } from '../../tensor/index.ts';
import type { CpuCall } from './types.ts';

interface OfPart {
  readonly modelPath: string;
}

export interface CpuCoreApi {
  open(order: OfPart): void;
  release(order: OfPart): void;
  /**
   * Answers with the call's loose outputs. `call`: JSON if all tensors are at addresses. It is sent in half the time of
   * objects, and identifies a repeated call.
   */
  run(order: OfPart & { readonly call: string | CpuCall }): readonly Tensor[];
  time(timing: OperatorTiming): OperatorTimes;
}

/** Times the operators of a model while other cores time them too. */
export interface OperatorTiming {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** Limit for the timed runs. */
  readonly iterations: number;
  /** An empty folder for this core's profile. */
  readonly folder: string;
  /** Number of cores that run at once. */
  readonly cores: number;
  /** Shared by all cores: see {@link signalAt}. */
  readonly signals: Int32Array;
}

/** Indices of the signals: how many cores have come to a point, and whether all shall stop. */
export const signalAt = { ready: 0, timed: 1, readyWhole: 2, timedWhole: 3, stop: 4 };
export const signalCount = 5;

/** Times of one core while all were running. */
export interface OperatorTimes {
  /** Milliseconds by node name, one for each timed run. */
  readonly nodes: readonly (readonly [name: string, times: Float64Array])[];
  /** Milliseconds of whole runs, optimised and without a profile. */
  readonly whole: Float64Array;
}
