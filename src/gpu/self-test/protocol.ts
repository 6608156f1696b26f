/** What the process that tests beliefs is asked, and how it fails. Nothing here runs. */
import type { Capability } from '../types.ts';
import type { Belief } from './beliefs.ts';

export type BeliefRequest = { readonly cacheFolder: string } & (
  | { readonly op: 'identify' }
  | {
      readonly op: 'test';
      readonly belief: Belief;
      /** What was found to be lacking before. */
      readonly without: readonly Capability[];
    }
);

export interface BeliefFailure {
  readonly message: string;
  /** The context is of no use any more. */
  readonly isFatal: boolean;
  /** There was too little memory to test with. */
  readonly isShortage: boolean;
  /** There is no driver or GPU to test. */
  readonly isUnavailable: boolean;
}
