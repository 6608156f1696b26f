/** What the live shell keeps of functions, invocations and orders. Nothing here runs. */
import type { OfferSheet } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { Correction } from './correction.ts';
import type { FunctionPlans } from './plan-book.ts';
import type { GpuOutcome, GpuWish } from './shell-types.ts';

export interface ShellFunction {
  readonly index: number;
  readonly key: string;
  plans: FunctionPlans;
  sheet: OfferSheet;
  correction: Correction;
  lastUseMs: number;
  /** How often it went to a smaller plan for room, and to a larger one again. */
  shrinks: number;
  growths: number;
  /** By GPU, when its first layers began to arrive; undefined where it has none. */
  readonly sinceMs: (number | undefined)[];
  /** By GPU, when the latest load was ordered. */
  readonly loadOrderedMs: number[];
  /** While the scheduler does not have it, because everything of it is being given back. */
  withdrawal: Promise<void> | undefined;
}

export interface Pending {
  readonly id: number;
  readonly fn: ShellFunction;
  readonly inputs: readonly Tensor[];
  readonly arrivalMs: number;
  readonly signal: AbortSignal | undefined;
  readonly wish: GpuWish;
  readonly resolve: (outcome: GpuOutcome) => void;
  readonly reject: (error: unknown) => void;
  stage: 'waiting' | 'running' | 'over';
}
