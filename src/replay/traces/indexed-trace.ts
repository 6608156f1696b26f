import type { Trace } from '../types.ts';

/** A trace whose file has been read and checked once: its functions and its length are known. */
export interface IndexedTrace extends Trace {
  /** Invocations. */
  readonly requests: number;
  /** Some invocations have an SLO of their own. */
  readonly hasOwnSlo?: boolean;
}
