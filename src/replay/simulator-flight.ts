import type { OutcomePlacement } from './types.ts';

const none = -1;
export const nobodyElse: readonly number[] = [];

/** An invocation under way. */
export interface Flight {
  sequence: number;
  functionIndex: number;
  arrivalMs: number;
  sloMs: number;
  /** As the scheduler said when it chose the place; NaN until then. */
  predictedEndMs: number;
  /** When anything was first done for it; Infinity until then. */
  begunMs: number;
  runMs: number;
  /** What its run takes with everything there. */
  warmMs: number;
  /** By how much a joined run is longer than a single one. */
  joinedMs: number;
  /** That share its run. */
  companions: readonly number[];
  placement: OutcomePlacement | undefined;
  isMeasured: boolean;
  /** The entry in the heap that ends it. */
  finishDue: number;
}

/** With fractions where there may be some later: an object whose fields change their kind is made anew by the engine. */
export const newFlight = (): Flight => ({
  sequence: 0,
  functionIndex: 0,
  arrivalMs: NaN,
  sloMs: NaN,
  predictedEndMs: NaN,
  begunMs: NaN,
  runMs: NaN,
  warmMs: NaN,
  joinedMs: NaN,
  companions: nobodyElse,
  placement: undefined,
  isMeasured: false,
  finishDue: none,
});
