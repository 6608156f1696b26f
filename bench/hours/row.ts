import type { Machine } from '../../src/hardware/index.ts';
import type { LayerProfile, WeightBits } from '../../src/profile/index.ts';
import type { GpuChange, SimulationSettings, Trace } from '../../src/replay/index.ts';
import type { CpuGiven } from '../../src/cli/values.ts';
import type { Policy } from '../../src/schedule/index.ts';

/** Means over the seeds of a row. */
export interface Hour {
  readonly goodput: number;
  /** By seed, as p99 below. */
  readonly goodputBySeed: readonly number[];
  /** Of answered requests; Infinity without any. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** By seed: policies are compared under the same arrivals. */
  readonly p99MsBySeed: readonly number[];
  readonly shedShare: number;
  readonly offloadedShare: number;
  readonly coldShare: number;
  /** Evictions per request. */
  readonly evictionsPerRequest: number;
  /** Functions that are read from disk, for each request. */
  readonly diskReadsPerRequest: number;
  /** Requests of the busiest GPU over the mean of all; 0 without GPUs. */
  readonly busiestToMean: number;
  /** By class of the row's functions, if it has any. */
  readonly goodputByClass: Readonly<Record<string, number>>;
  /** CPU time of the simulation per request, with the warm-up, without planning. */
  readonly usPerRequest: number;
}

/** One load on one machine: a row of the table. */
export interface HoursRow {
  /** As for `--row`: lower case, with hyphens. */
  readonly name: string;
  /** What a reader needs to repeat it. */
  readonly load: string;
  readonly machine: Machine;
  readonly trace: (seed: number) => Trace;
  /** The first requests, which are not measured. */
  readonly warmup: number;
  readonly sloMsOf: (functionIndex: number) => number;
  readonly admission: Policy['admission'];
  /** As in `--cpu`: a session without times of its own is loaded as fast as the disk reads it. */
  readonly cpu?: CpuGiven;
  readonly reserveBytes?: number;
  /** Left out: everything is in host memory. */
  readonly host?: SimulationSettings['host'];
  /** GPUs that are lost, and that come back; left out: none. */
  readonly gpuChanges?: readonly GpuChange[];
  /** Groups of functions with separate goodput. */
  readonly classOf?: (functionIndex: number) => string;
  /** Of models that are not estimated by name. */
  readonly profiles?: ReadonlyMap<string, LayerProfile>;
  /** In how many bits the weights of the others are held and moved; left out: 32. */
  readonly weightBits?: WeightBits;
  /** Whether they are coded without loss on their way to GPUs; left out: no. */
  readonly coding?: boolean;
  /** What the functions of a model share of their bytes; left out: nothing. */
  readonly sharedShare?: number;
  /** How many it runs with; left out: 3. A row that takes long has 1. */
  readonly seeds?: number;
  /** What `best` has to reach in this row, beside not being behind the other policies. */
  readonly aims?: readonly HoursAim[];
}

export interface HoursAim {
  readonly aim: string;
  /** @param of the other systems by name */
  readonly judge: (best: Hour, of: (system: string) => Hour | undefined) => { met: boolean; reached: string };
}
