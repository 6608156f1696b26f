import type { Outcome, OutcomePlacement } from './types.ts';

const none = -1;
export const nobodyElse: readonly number[] = [];

export const cpuPlacement: OutcomePlacement = { kind: 'cpu' };
export const coldCpuPlacement: OutcomePlacement = { kind: 'cpu', coldStart: true };
export const workerPlacement: OutcomePlacement = { kind: 'worker' };
export const shedPlacement: OutcomePlacement = { kind: 'shed' };

/** An invocation under way. */
export interface Flight {
  sequence: number;
  functionIndex: number;
  arrivalMs: number;
  sloMs: number;
  /** The scheduler's prediction when it chose the place; NaN until then. */
  predictedEndMs: number;
  /** When its first activity began; Infinity until then. */
  begunMs: number;
  runMs: number;
  /** Its run's time with all layers resident. */
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

/** NaN wherever fractions may come later: V8 would rebuild an object whose field changes from integer to double. */
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

export function notBegun(flight: Flight): void {
  flight.predictedEndMs = NaN;
  flight.begunMs = Infinity;
  flight.runMs = 0;
  flight.warmMs = 0;
  flight.joinedMs = 0;
  flight.companions = nobodyElse;
  flight.placement = undefined;
  flight.finishDue = none;
}

export type Mutable<Record> = { -readonly [Field in keyof Record]: Record[Field] };

/** With fractions where there may be some later, as a flight. */
export const newOutcome = (): Mutable<Outcome> => ({
  sequence: 0,
  functionIndex: 0,
  arrivalMs: NaN,
  endMs: NaN,
  queueMs: NaN,
  sloMs: NaN,
  placement: shedPlacement,
  predictedEndMs: NaN,
});
