/** What a function costs on the CPU cores of one machine, as measured there. Plain data; the same in files. */
import { parsePoolProfile, parseServiceProfile, profileCheck, ProfileError } from '../../../profile/index.ts';
import type { PoolProfile, ServiceProfile } from '../../../profile/index.ts';
import type { MeasuredSession } from '../../instance/index.ts';
import type { PoolGroup } from '../../types.ts';
import type { IdleCost } from './idle-cost.ts';

/** The conditions of a measurement: another processor or another ONNX Runtime gives other times. */
export interface MeasuredOn {
  readonly processor: string;
  /** Cores that were measured on. */
  readonly cores: number;
  readonly onnxRuntime: string;
}

/** How much service times vary, by the number of running instances. */
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
  /** The same from each instance alone: Packrat's expectation. */
  readonly expectedMs: number;
  /**
   * Share of the turns in which it was done before the list of the fewest instances, the fat one, with the same batches
   * moments apart. 1 for that list itself.
   */
  readonly aheadShare: number;
}

export interface CpuProfile {
  readonly format: 3;
  readonly provenance: 'measured';
  readonly machine: MeasuredOn;
  /** SHA-256 of the model file, lower-case hex. */
  readonly modelSha256: string;
  /** Sizes that were given to open dimensions, except the batch. */
  readonly dimensions: Readonly<Record<string, number>>;
  /** How the sessions ran. A profile of others is measured again. */
  readonly session: MeasuredSession;
  /** `budget`: what is missing stays unknown. `interrupted`: it is still to be measured. */
  readonly ended: 'whole' | 'budget' | 'interrupted';
  /** ISO 8601, UTC. */
  readonly measuredAt: string;
  /** All sittings together. */
  readonly tookMs: number;
  /**
   * How long measuring each configuration at ten loads with 5000 requests would have taken (SERF, Table II); estimated.
   */
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
  /** How much those times vary from one row to the next. SERF assumes that they do not. */
  readonly variation: readonly ServiceVariation[];
  /** Milliseconds from the arrival of a request at a pool until a free instance has it. */
  readonly dispatchMs: number;
  /** How much longer a row takes on an instance that was idle before. */
  readonly idle: readonly IdleCost[];
  /** The instances that can run a batch, measured together; the fastest of a batch first. */
  readonly lists: readonly MeasuredList[];
}

const check = profileCheck('cpu', 'CPU profile');

/**
 * Checks a profile that was read from a file, down to the last entry: pools are run by it. Throws {@link ProfileError}
 * that names the problem.
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
