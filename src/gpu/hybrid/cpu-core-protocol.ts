/** Requests to a core's thread. It answers `run` with the call's loose outputs, other requests with null. */
import type { CpuCall } from './types.ts';

export type CpuCoreRequest =
  | { readonly op: 'open' | 'release'; readonly modelPath: string }
  | {
      readonly op: 'run';
      readonly modelPath: string;
      /**
       * JSON if all tensors are at addresses. It is sent in half the time of objects, and identifies a repeated call.
       */
      readonly call: string | CpuCall;
    };
