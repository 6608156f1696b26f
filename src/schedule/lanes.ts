/** What a place beside the GPUs runs invocations on: lanes that each run one thing at a time. */
import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import type { SideId } from './ids.ts';
import type { SideOffer } from './offer.ts';
import type { Observation } from './types.ts';

/** `nowMs` and all instants as in the events. */
export interface Lanes<Config = never> {
  readonly id: SideId;
  /** Those that functions share; 0: the place is gone. */
  readonly count: number;
  /** The place has changed; null: it is gone. */
  set(config: Config | null): void;
  /** What the function's sheet offers here, if anything. */
  offerFor(fn: ServedFunction): SideOffer | null | undefined;
  /** Whether an invocation could ever run there. */
  canTake(fn: ServedFunction): boolean;
  /** Lanes of the function's own. Where it has some, its calls take no others, and wait for no other function's. */
  ownCount(fn: ServedFunction): number;
  /** Whether enough of the lanes are free that a run of the function takes. */
  hasLane(fn: ServedFunction): boolean;
  /** Lane milliseconds of a run that takes so long: its way there and back takes no lane. */
  laneMs(fn: ServedFunction, runMs: number): number;
  /** Lane milliseconds left of the runs under way: on the lanes that functions share, or on those of one function's own. */
  leftMs(nowMs: number, owner?: ServedFunction): number;
  /** How long a run takes that starts at that instant, including everything it has to wait for then. */
  runMs(fn: ServedFunction, startMs: number): number;
  /** Whether an invocation can start now. */
  canStart(fn: ServedFunction): boolean;
  /**
   * Takes the resources of a run that is expected to end at `endMs`. Returns whether what it needs there has to be made
   * first.
   */
  start(invocation: Invocation, endMs: number, nowMs: number): boolean;
  /** A run has ended. `observed` is undefined if the place refused it. */
  end(invocation: Invocation, observed: Observation | undefined): void;
  /** What was learnt of its runs' times does not hold any more. */
  forgetRuns(fn: ServedFunction): void;
  forget(fn: ServedFunction): void;
  /**
   * Makes runs that have held their lanes too long share them, so that another function's invocation may start beside
   * them. Returns when the next run will have held too long; Infinity if none will.
   */
  shareHeld?(nowMs: number): number;
  /** Whether any run shares its lanes. Then a function that has one may have to wait where another need not. */
  readonly isShared?: boolean;
  /** Whether a call that is late everywhere is to have what its function needs here made: the next calls would be in time. */
  isWorthMaking?(fn: ServedFunction, mostMs: number): boolean;
  /** Has what the function needs here made without a call, if so many lanes are idle that no call would wait for it. */
  makeAhead?(fn: ServedFunction, nowMs: number): boolean;
}
