import type { InputShapes } from '../../gpu/index.ts';
import type { FunctionPlans } from '../live/index.ts';
import type { FunctionVersion } from '../types.ts';
import type { PlanFacts } from './function-state.ts';
import type { KnownShapes } from './known-shapes.ts';

export interface Joining {
  /** According to its settings. */
  rowsMax: number;
  /** The offered sizes, the single run first; undefined while calls run one by one. */
  sizes: readonly number[] | undefined;
  isTimed: boolean;
  /** How often timing them was tried. */
  timings: number;
}

/** The part of a function's record that is no data. */
export interface Held {
  version: FunctionVersion;
  plans: FunctionPlans | undefined;
  weightBytes: number;
  shapes: KnownShapes;
  /** A call's shapes and values for a function that waited for them: its first program is made for these. */
  sized: InputShapes | undefined;
  /** The inputs whose values its programs are made for. */
  sizing: ReadonlySet<string>;
  /** How its calls are joined into runs. */
  readonly joining: Joining;
  /** Its work so far: later work is chained to it. */
  work: Promise<void>;
  /** Resolves when the scheduler has freed all its layers. */
  retracted: Promise<void>;
  /** The process may have it. */
  isRegistered: boolean;
  /** Aborts waiting parts of the latest work. */
  overtaken: AbortController;
}

export const planOf = ({
  plans,
  weightBytes,
}: {
  readonly plans: FunctionPlans;
  readonly weightBytes: number;
}): PlanFacts => ({
  mode: plans.mode,
  weightBytes,
});
