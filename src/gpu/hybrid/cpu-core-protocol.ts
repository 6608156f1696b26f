/** Requests to a core's thread. It answers `run` with a {@link CpuCallResult}, other requests with null. */
import type { CpuCall } from './types.ts';

export type CpuCoreRequest =
  | {
      readonly op: 'open';
      readonly modelPath: string;
      /** The operating system's number of the core; null: not pinned. */
      readonly pinTo: number | null;
    }
  | {
      readonly op: 'run';
      readonly modelPath: string;
      /**
       * JSON if all tensors are at addresses. It is sent in half the time of objects, and identifies a repeated call.
       */
      readonly call: string | CpuCall;
    }
  | { readonly op: 'release'; readonly modelPath: string };
