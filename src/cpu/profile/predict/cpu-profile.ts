/** What a function costs on the CPU cores of one machine, as it was measured there. Plain data; the same in files. */
import { parsePoolProfile, parseServiceProfile, ProfileError } from '../../../profile/index.ts';
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

/**
 * Checks what was read from a file, to the last entry: a pool is run by what it says. Throws {@link ProfileError}
 * naming what is wrong.
 */
export function parseCpuProfile(json: unknown): CpuProfile {
  const profile = fieldsOf(json, 'the CPU profile');
  if (profile['format'] !== 2) throw new ProfileError("the CPU profile has no 'format' 2");
  mustBeNumbers(profile, ['tookMs', 'exhaustiveMs', 'startMs', 'dispatchMs'], '');
  mustBeText(profile, ['modelSha256', 'measuredAt'], '');
  const machine = fieldsOf(profile['machine'], "field 'machine' of the CPU profile");
  mustBeNumbers(machine, ['cores'], 'machine.');
  mustBeText(machine, ['processor', 'onnxRuntime'], 'machine.');
  const dimensions = fieldsOf(profile['dimensions'], "field 'dimensions' of the CPU profile");
  mustBeNumbers(dimensions, Object.keys(dimensions), 'dimensions.');
  const { threads, batches } = parsePoolProfile(profile['pool']);
  const spread = entriesOf(profile, 'spread', '');
  const isFull = (row: unknown): boolean =>
    Array.isArray(row) && row.length === batches.length && row.every((value) => value === null || isAmount(value));
  if (spread.length !== threads.length || !spread.every(isFull)) {
    throw new ProfileError("field 'spread' of the CPU profile has no entry for each of 'pool.latency'");
  }
  const service = fieldsOf(profile['service'], "field 'service' of the CPU profile");
  if (entriesOf(service, 'configurations', 'service.').length > 0) parseServiceProfile(service);
  mustHoldNumbers(profile, 'variation', ['concurrency', 'threads', 'squared'], '');
  mustHoldNumbers(profile, 'idle', ['threads', 'gapMs', 'extraMs'], '');
  for (const [at, list] of mustHoldNumbers(profile, 'lists', listNumbers, '').entries()) {
    if (mustHoldNumbers(list, 'groups', ['instances', 'threads', 'batch'], `lists[${at}].`).length === 0) {
      throw new ProfileError(`field 'lists[${at}].groups' of the CPU profile is empty`);
    }
  }
  return json as CpuProfile;
}

const listNumbers = ['batch', 'latencyMs', 'expectedMs', 'aheadShare'] as const;

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(json: unknown, what: string): Fields {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) throw new ProfileError(`${what} is missing`);
  return json as Fields;
}

function entriesOf(fields: Fields, name: string, path: string): readonly unknown[] {
  const list = fields[name];
  if (!Array.isArray(list)) throw new ProfileError(`field '${path}${name}' of the CPU profile is no list`);
  return list;
}

/** A list of objects that each have these numbers. */
function mustHoldNumbers(fields: Fields, name: string, numbers: readonly string[], path: string): readonly Fields[] {
  return entriesOf(fields, name, path).map((entry, at) => {
    const own = fieldsOf(entry, `field '${path}${name}[${at}]' of the CPU profile`);
    mustBeNumbers(own, numbers, `${path}${name}[${at}].`);
    return own;
  });
}

function mustBeNumbers(fields: Fields, names: readonly string[], path: string): void {
  for (const name of names) {
    if (!isAmount(fields[name])) throw new ProfileError(`field '${path}${name}' of the CPU profile is no number`);
  }
}

function mustBeText(fields: Fields, names: readonly string[], path: string): void {
  for (const name of names) {
    if (typeof fields[name] !== 'string') {
      throw new ProfileError(`field '${path}${name}' of the CPU profile is no text`);
    }
  }
}

/** Times, counts and shares are all 0 or more. */
function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
