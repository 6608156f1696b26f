/** What the owner of a core's thread and the thread say to each other. */
import type { CpuCall, CpuCallResult } from './types.ts';

export interface CpuCoreThreadOptions {
  /** The operating system's number of the core to stay on; null: wherever there is room. */
  readonly pinTo: number | null;
  /** Not 0 at 0: take nothing more and end. Beside the messages, so that it overtakes those that wait. */
  readonly stop: Int32Array;
}

export type ToCpuCore =
  | { readonly op: 'open'; readonly id: number; readonly part: number; readonly modelPath: string }
  | {
      readonly op: 'run';
      readonly id: number;
      readonly part: number;
      /**
       * As JSON where all tensors are at addresses: a text crosses in half the time of the objects, and calls that come again
       * are recognised by it.
       */
      readonly call: string | CpuCall;
    }
  | { readonly op: 'release'; readonly id: number; readonly part: number }
  /** Wakes the thread, which then sees that it is to stop. */
  | { readonly op: 'stop'; readonly id: number };

export type FromCpuCore =
  | { readonly id: number; readonly ok: true; readonly result: CpuCallResult | null }
  | { readonly id: number; readonly ok: false; readonly message: string };
