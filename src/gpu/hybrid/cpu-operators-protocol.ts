/** What the threads that time a model's operators are given, and what they find. */
import type { Tensor } from '../../tensor/index.ts';

export interface CpuOperatorsOptions {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** Most runs that are timed. */
  readonly iterations: number;
  /** Where ONNX Runtime writes its profile: empty, and this thread's own. */
  readonly folder: string;
  readonly pinTo: number | null;
  /** How many threads there are. */
  readonly threads: number;
  /** Shared by all threads: see {@link signalAt}. */
  readonly signals: Int32Array;
}

/** Where each signal is: counts of threads, and whether all shall stop. */
export const signalAt = { ready: 0, timed: 1, readyWhole: 2, timedWhole: 3, stop: 4 };
export const signalCount = 5;

/** Of one thread, while all of them were at work. */
export interface CpuOperatorTimes {
  /** Milliseconds by node name, one for each timed run. */
  readonly nodes: readonly (readonly [name: string, times: Float64Array])[];
  /** Milliseconds of whole runs, optimised and without a profile. */
  readonly whole: Float64Array;
}
