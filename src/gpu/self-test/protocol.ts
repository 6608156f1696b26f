/** Requests to the process that tests beliefs. It answers with a text, or fails with a GpuFailure. */
import type { Capability } from '../types.ts';
import type { Belief } from './beliefs.ts';

export type BeliefRequest = { readonly cacheFolder: string } & (
  | { readonly op: 'identify' }
  | {
      readonly op: 'test';
      readonly belief: Belief;
      /** Capabilities that earlier tests found missing. */
      readonly without: readonly Capability[];
    }
);
