/** What a function costs on the CPU cores of one machine, as it was measured there. Plain data; the same in files. */
import { parsePoolProfile, parseServiceProfile, profileCheck, ProfileError } from '../../../profile/index.ts';
import type { PoolProfile, ServiceProfile } from '../../../profile/index.ts';
import type { PoolGroup } from '../../types.ts';
import type { IdleCost } from './idle-cost.ts';

/** What a measurement holds for: another processor or another ONNX Runtime gives other times. */
export interface MeasuredOn {
  readonly processor: string;
  /** Cores that were measured on. */
  readonly cores: number;
  readonly onnxRuntime: string;
}

/** How much the service times of some instances at work vary. */
export interface ServiceVariation {
  readonly concurrency: number;
  readonly threads: number;
  /** Variance over the squared mean. */
  readonly squared: number;
}

/** A list of instances that ran together, all of them at once. */
export interface MeasuredList {
  /** Rows of the whole batch. */
  readonly batch: number;
  readonly groups: readonly PoolGroup[];
  /** Milliseconds until the slowest instance was done: the median of the runs. */
  readonly latencyMs: number;
  /** What the same instances take alone: Packrat's expectation. */
  readonly expectedMs: number;
  /**
   * Share of the turns in which it was done before the list of the fewest instances, the fat one: the same batches,
   * moments apart. 1 for that list itself.
   */
  readonly aheadShare: number;
}

export interface CpuProfile {
  readonly format: 2;
  readonly provenance: 'measured';
  readonly machine: MeasuredOn;
  /** Of the model file, lower-case hex. */
  readonly modelSha256: string;
  /** Sizes that were given to open dimensions, the batch aside. */
  readonly dimensions: Readonly<Record<string, number>>;
  /** ISO 8601, UTC. */
  readonly measuredAt: string;
  readonly tookMs: number;
  /** What measuring each configuration at ten loads with 5000 requests would have taken (SERF, Table II); estimated. */
  readonly exhaustiveMs: number;
  /** Milliseconds from taking a process without a model until the model was loaded; median. */
  readonly startMs: number;
  /** One instance alone, by threads and batch (Packrat, 3.2). */
  readonly pool: PoolProfile;
  /** Half the distance of the quartiles over the median, for each entry of `pool.latency`. */
  readonly spread: readonly (readonly (number | null)[])[];
  /**
   * One request at a time on each of c instances (SERF, IV-B): of the smallest batch in `pool`, one row unless the
   * model fixes more.
   */
  readonly service: ServiceProfile;
  /** What SERF takes to be nothing: how much those times vary from one row to the next. */
  readonly variation: readonly ServiceVariation[];
  /** Milliseconds from the arrival of a request at a pool until a free instance has it. */
  readonly dispatchMs: number;
  /** How much longer a row takes on an instance that had nothing to do before. */
  readonly idle: readonly IdleCost[];
  /** The instances that can run a batch, measured together; the fastest of a batch first. */
  readonly lists: readonly MeasuredList[];
}

const check = profileCheck('cpu', 'CPU profile');

/**
 * Checks what was read from a file, to the last entry: a pool is run by what it says. Throws {@link ProfileError}
 * naming what is wrong.
 */
export function parseCpuProfile(json: unknown): CpuProfile {
  check(json);
  const profile = json as CpuProfile;
  const { threads, batches } = parsePoolProfile(profile.pool);
  if (profile.spread.length !== threads.length || profile.spread.some((row) => row.length !== batches.length)) {
    throw new ProfileError("field 'spread' of the CPU profile has no entry for each of 'pool.latency'");
  }
  if (profile.service.configurations.length > 0) parseServiceProfile(profile.service);
  return profile;
}
