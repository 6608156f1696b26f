import type { Given, InvocationId } from '../schedule/index.ts';
import type { Outcome, OutcomePlacement } from './types.ts';

export const nobodyElse: readonly number[] = [];

export const cpuPlacement: OutcomePlacement = { kind: 'cpu' };
export const coldCpuPlacement: OutcomePlacement = { kind: 'cpu', coldStart: true };
export const workerPlacement: OutcomePlacement = { kind: 'worker' };
export const shedPlacement: OutcomePlacement = { kind: 'shed' };

/** An invocation under way. */
export type Flight = ReturnType<typeof newFlight>;

/** NaN wherever fractions may come later: V8 would rebuild an object whose field changes from integer to double. */
export const newFlight = () => ({
  sequence: 0,
  functionIndex: 0,
  arrivalMs: NaN,
  sloMs: NaN,
  /** The scheduler's prediction when it chose the place; NaN until then. */
  predictedEndMs: NaN,
  /** When its first activity began; Infinity until then. */
  begunMs: NaN,
  runMs: NaN,
  /** When it was handed to its pool. */
  handedMs: NaN,
  /** Its run's time with all layers resident. */
  warmMs: NaN,
  /** By how much a joined run is longer than a single one. */
  joinedMs: NaN,
  /** That share its run. */
  companions: nobodyElse,
  placement: undefined as OutcomePlacement | undefined,
  /** The entry in the heap that ends it. */
  finishDue: undefined as number | undefined,
});

/** A call of one row, as instances on the CPU take it. */
export const callOf = (invocation: Given<InvocationId>, { arrivalMs }: Flight) => ({
  invocation,
  rows: 1,
  arrivalMs,
  deadlineMs: Infinity,
  alone: false,
});

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
