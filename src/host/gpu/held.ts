import type { InputShapes } from '../../gpu/index.ts';
import type { FunctionPlans } from '../live/index.ts';
import type { FunctionVersion } from '../types.ts';
import type { PlanFacts } from './function-state.ts';
import type { KnownShapes } from './known-shapes.ts';

export interface Joining {
  /** As its settings have it. */
  rowsMax: number;
  /** That are offered, the single run first; undefined while calls run one by one. */
  sizes: readonly number[] | undefined;
  isTimed: boolean;
  /** How often it was tried to time them. */
  timings: number;
}

/** What belongs to a record and is no data. */
export interface Held {
  version: FunctionVersion;
  plans: FunctionPlans | undefined;
  weightBytes: number;
  shapes: KnownShapes;
  /** Of a call, for a function that waits for values: what its first program is to be made for. */
  sized: InputShapes | undefined;
  /** The inputs whose values its programs are made for. */
  sizing: ReadonlySet<string>;
  /** How its calls are joined into runs. */
  readonly joining: Joining;
  /** Its work so far: what comes later is done later. */
  work: Promise<void>;
  /** Until the scheduler has given everything of it back. */
  retracted: Promise<void>;
  /** The process may have it. */
  isRegistered: boolean;
  /** Aborts what waits in the latest work. */
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
