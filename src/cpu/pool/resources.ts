/** Resources that the pools of a machine share. */
import type { DiskRead, LoadGate, Processes, WeightsCache } from '../instance/index.ts';
import type { GiveUpCause, Reconfigured, Stopped } from '../types.ts';
import type { CoreAllocator } from './cores.ts';

export interface PoolResources {
  readonly processes: Processes;
  readonly cores: CoreAllocator;
  /** Admits loads as there is memory for them. */
  readonly loads: LoadGate;
  /** Undefined: instances do not share the memory of their weights. */
  readonly weights: WeightsCache | undefined;
  readonly events: PoolEvents;
  /** The share of joined runs whose answers are compared with runs alone. */
  readonly comparedShare: number;
  /** Memory that was reserved is that of the function's sessions from now on. */
  readonly tookOver: (key: string) => void;
  /** A measured figure of the function has changed. */
  readonly factsChanged: (key: string) => void;
}

/** `loadMs`: from taking the instance until it was ready, including what was left of its start. */
export interface Loaded {
  readonly key: string;
  readonly loadMs: number;
}

/** An instance waited so long for the disk, for a load or a run. */
export interface DiskWait extends DiskRead {
  readonly key: string;
}

/** `ageMs`: how long it had been ready. `reason`: the cause in words; for a death, the operating system's. */
export interface GivenUp {
  readonly key: string;
  readonly cause: GiveUpCause;
  readonly ageMs: number;
  readonly reason: string;
}

/** `reason`: how a call got another answer beside others than alone. */
export interface RowsMix {
  readonly key: string;
  readonly reason: string;
}

export interface PoolEvents {
  /** Called once, when a joined run of the function gave a wrong answer, which nobody got. */
  readonly onRowsMix?: (mix: RowsMix) => void;
  /** Called for every model that was loaded into an instance. */
  readonly onLoaded?: (loaded: Loaded) => void;
  readonly onDiskWait?: (wait: DiskWait) => void;
  /** Called for every instance with a model that has ended, and why. */
  readonly onGivenUp?: (given: GivenUp) => void;
  /** Called when a function is stopped because it kills its processes. */
  readonly onStopped?: (key: string, stopped: Stopped) => void;
  /** Called with the result of each `configure`. */
  readonly onReconfigured?: (reconfigured: Reconfigured) => void;
}
