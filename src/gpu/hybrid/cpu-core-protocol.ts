/** What a core's thread is asked to do. What it answers to a `run` is a {@link CpuCallResult}, to all else nothing. */
import type { CpuCall } from './types.ts';

export type CpuCoreRequest =
  | {
      readonly op: 'open';
      readonly modelPath: string;
      /** The operating system's number of the core to stay on; null: wherever there is room. */
      readonly pinTo: number | null;
    }
  | {
      readonly op: 'run';
      readonly modelPath: string;
      /**
       * As JSON where all tensors are at addresses: a text crosses in half the time of the objects, and calls that come
       * again are recognised by it.
       */
      readonly call: string | CpuCall;
    }
  | { readonly op: 'release'; readonly modelPath: string };
