/** Requests to the process that tests beliefs, and its failures. */
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

export interface BeliefFailure {
  readonly message: string;
  /** The context is unusable: the process must be restarted. */
  readonly isFatal: boolean;
  /** There was too little memory for the test. */
  readonly isShortage: boolean;
  /** There is no driver or GPU to test. */
  readonly isUnavailable: boolean;
}
