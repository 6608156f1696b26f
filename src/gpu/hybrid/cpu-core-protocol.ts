/** The methods of a CPU core's thread, which runs the CPU parts of plans over GPU and CPU. */
import type { Tensor } from '../../tensor/index.ts';
import type { CpuCall } from './types.ts';

interface OfPart {
  readonly modelPath: string;
}

export interface CpuCoreApi {
  /** Opens a session of the part, unless the thread has one. */
  open(order: OfPart): void;
  /** Ends the part's session. */
  release(order: OfPart): void;
  /**
   * Runs the part, and answers with the outputs that have no address (`loose`). `call` is JSON if all tensors have
   * addresses: a string is sent in half the time of an object, and identifies a repeated call.
   */
  run(order: OfPart & { readonly call: string | CpuCall }): readonly Tensor[];
  /** Times the operators of a model while other cores time them too. */
  time(timing: OperatorTiming): OperatorTimes;
}

/** An order to time a model's operators on several cores at once. */
export interface OperatorTiming {
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  /** How many runs are timed at most. */
  readonly iterations: number;
  /** An empty folder for this core's profile. */
  readonly folder: string;
  /** How many cores time at once. */
  readonly cores: number;
  /** Shared by all cores: see {@link signalAt}. */
  readonly signals: Int32Array;
}

/**
 * Indices into the signals: how many cores have reached a point (ready for the runs by operator, done with them, the
 * same for whole runs), and whether all shall stop.
 */
export const signalAt = { ready: 0, timed: 1, readyWhole: 2, timedWhole: 3, stop: 4 };
export const signalCount = 5;

/** The times that one core measured while all were running. */
export interface OperatorTimes {
  /** Milliseconds by node name, one for each timed run. */
  readonly nodes: readonly (readonly [name: string, times: Float64Array])[];
  /** Milliseconds of whole runs, optimised and without a profile. */
  readonly whole: Float64Array;
}
