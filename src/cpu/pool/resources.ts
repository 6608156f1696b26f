/** Resources that the pools of a machine share. */
import type { Residency, WeightsCache } from '../instance/index.ts';
import type { GiveUpCause, Reconfigured } from '../types.ts';
import type { CoreAllocator, CoreTurns } from './cores.ts';

export interface PoolResources {
  readonly residency: Residency;
  readonly cores: CoreAllocator;
  readonly turns: CoreTurns;
  /** Undefined: instances do not share the memory of their weights. */
  readonly weights: WeightsCache | undefined;
  readonly events: PoolEvents;
}

export interface PoolEvents {
  /** A model was loaded into one more instance. */
  loaded(key: string, loadMs: number): void;
  /** An instance that was ready has ended; `reason` in words. */
  givenUp(key: string, cause: GiveUpCause, ageMs: number, reason: string): void;
  reconfigured(outcome: Reconfigured): void;
  /** A measured figure of the function has changed. */
  facts(key: string): void;
}
