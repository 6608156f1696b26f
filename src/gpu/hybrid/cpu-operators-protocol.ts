/** Requests to the threads that time a model's operators, and their results. */
import type { Tensor } from '../../tensor/index.ts';

export interface CpuOperatorsOptions {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** Limit for the timed runs. */
  readonly iterations: number;
  /** An empty folder for this thread's profile. */
  readonly folder: string;
  readonly pinTo: number | null;
  /** Number of threads that run at once. */
  readonly threads: number;
  /** Shared by all threads: see {@link signalAt}. */
  readonly signals: Int32Array;
}

/** Indices of the signals: how many threads have come to a point, and whether all shall stop. */
export const signalAt = { ready: 0, timed: 1, readyWhole: 2, timedWhole: 3, stop: 4 };
export const signalCount = 5;

/** Times of one thread while all threads were running. */
export interface CpuOperatorTimes {
  /** Milliseconds by node name, one for each timed run. */
  readonly nodes: readonly (readonly [name: string, times: Float64Array])[];
  /** Milliseconds of whole runs, optimised and without a profile. */
  readonly whole: Float64Array;
}
