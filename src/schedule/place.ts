/** What the scheduler asks of a place that runs invocations. place.test.ts tries each kind. */
import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import type { Observation, PlaceId } from './types.ts';

export interface Place {
  readonly id: PlaceId;
  /** Invocations that wait there. */
  readonly waitingCount: number;
  /** Whether it could ever run the function, as far as is known now. */
  canTake(fn: ServedFunction): boolean;
  /**
   * When an invocation of the function that arrived now would end there; Infinity where it cannot run. @param priority
   * its own; default: that of its function
   */
  predictEndMs(fn: ServedFunction, deadlineMs: number, nowMs: number, priority?: number): number;
  /** The invocation joins what waits there, and starts if it can. */
  enter(invocation: Invocation, nowMs: number): void;
  /** A waiting invocation leaves. */
  leave(invocation: Invocation): void;
  /** Whether the run of the invocation is one that `finish` may end: companions end with the run that they share. */
  runs(invocation: Invocation): boolean;
  /** The run of the invocation has ended. @param observed undefined where nothing was learnt: it may not have run */
  finish(invocation: Invocation, observed: Observation | undefined, nowMs: number): void;
  /** Invocations that share the run of this one. */
  companionsOf(invocation: Invocation): readonly Invocation[];
  /** Starts what can start. */
  dispatch(nowMs: number): void;
}
