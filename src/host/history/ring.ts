/** What is counted in each step of time. `offered` by arrival, all others by the end of the invocation. */
export const countNames = [
  'offered',
  'in_slo',
  'late',
  'shed',
  'failed',
  'cold',
  'gpuWarm',
  'gpuCold',
  'cpu',
  'remote',
] as const;
export type CountName = (typeof countNames)[number];

/**
 * Late answers by what took the most of their time: the wait for a turn, the load of weights, the handler, the run of
 * the model, the host (bodies read and written); and calls that ended by the client's own mistake or leaving.
 */
export const causeNames = ['lateQueue', 'lateLoad', 'lateHandler', 'lateModel', 'lateHost', 'client'] as const;
export type CauseName = (typeof causeNames)[number];

/** Parts of an answer's time, summed in tenths of a millisecond. */
export const partNames = ['partQueue', 'partLoad', 'partHandler', 'partModel', 'partHost'] as const;
export type PartName = (typeof partNames)[number];

const names = [...countNames, ...causeNames, ...partNames];
const width = names.length;
export const indexOf = Object.fromEntries(names.map((name, index) => [name, index])) as Record<
  CountName | CauseName | PartName,
  number
>;

/** What the end of an invocation counts. */
export interface Ended {
  /** Of what is counted, as {@link indexOf} has it. */
  readonly counted: readonly number[];
  /** Of one that was answered: its parts in tenths of a millisecond, as {@link partNames} has them, and all of it. */
  readonly answer: { readonly tenths: readonly number[]; readonly latencyMs: number } | undefined;
}

export interface RingOptions {
  readonly stepMs: number;
  readonly steps: number;
  readonly scale: LatencyScale;
}

/**
 * The last `steps` steps of time, in typed arrays of a fixed size: old steps are overwritten, never allocated anew. A
 * step that nothing happened in costs nothing to skip.
 */
export class Ring {
  readonly stepMs: number;
  readonly steps: number;
  readonly scale: LatencyScale;
  readonly #counts: Uint32Array;
  readonly #latencies: Uint32Array | Uint16Array;
  /** Which step a slot holds; steps are numbered from 1970 on. */
  readonly #stepOfSlot: Float64Array;

  constructor({ stepMs, steps, scale }: RingOptions) {
    this.stepMs = stepMs;
    this.steps = steps;
    this.scale = scale;
    this.#counts = new Uint32Array(steps * width);
    // A step of seconds of one function stays below 65,535 in each bucket, or is shown as that.
    this.#latencies = stepMs <= 10_000 ? new Uint16Array(steps * scale.count) : new Uint32Array(steps * scale.count);
    this.#stepOfSlot = new Float64Array(steps).fill(-1);
  }

  count(name: CountName | CauseName, atMs: number): void {
    const slot = this.#slot(atMs);
    if (slot >= 0) this.#counts[slot * width + indexOf[name]]!++;
  }

  ended({ counted, answer }: Ended, atMs: number): void {
    const slot = this.#slot(atMs);
    if (slot < 0) return;
    const first = slot * width;
    for (const index of counted) this.#counts[first + index]!++;
    if (answer === undefined) return;
    const firstPart = first + indexOf[partNames[0]];
    for (let part = 0; part < partNames.length; part++) this.#counts[firstPart + part]! += answer.tenths[part]!;
    const at = slot * this.scale.count + bucketOf(this.scale, answer.latencyMs);
    const answers = this.#latencies[at]!;
    const most = this.#latencies instanceof Uint16Array ? 0xffff : 0xffff_ffff;
    if (answers < most) this.#latencies[at] = answers + 1;
  }

  /** Counts of the step that begins at `step * stepMs`; undefined where nothing was counted. */
  counts(step: number): Uint32Array | undefined {
    const slot = this.#held(step);
    return slot < 0 ? undefined : this.#counts.subarray(slot * width, (slot + 1) * width);
  }

  /** Counts of the steps from one up to another, without making anything for each: the page asks for all functions. */
  sums(fromStep: number, toStep: number): Float64Array {
    const sums = new Float64Array(width);
    for (let step = fromStep; step < toStep; step++) {
      const slot = this.#held(step);
      if (slot < 0) continue;
      for (let at = 0; at < width; at++) sums[at]! += this.#counts[slot * width + at]!;
    }
    return sums;
  }

  /** How many latencies the step has. */
  answers(step: number): number {
    let sum = 0;
    const latencies = this.latencies(step);
    for (let bucket = 0; bucket < (latencies?.length ?? 0); bucket++) sum += latencies![bucket]!;
    return sum;
  }

  latencies(step: number): ArrayLike<number> | undefined {
    const slot = this.#held(step);
    return slot < 0 ? undefined : this.#latencies.subarray(slot * this.scale.count, (slot + 1) * this.scale.count);
  }

  #held(step: number): number {
    const slot = step % this.steps;
    return this.#stepOfSlot[slot] === step ? slot : -1;
  }

  /** The slot of an instant, emptied if it held an older step; -1 for an instant that is no longer kept. */
  #slot(atMs: number): number {
    const step = Math.floor(atMs / this.stepMs);
    const slot = step % this.steps;
    const held = this.#stepOfSlot[slot]!;
    if (held > step) return -1;
    if (held < step) {
      this.#counts.fill(0, slot * width, (slot + 1) * width);
      this.#latencies.fill(0, slot * this.scale.count, (slot + 1) * this.scale.count);
      this.#stepOfSlot[slot] = step;
    }
    return slot;
  }
}

export const countIn = (counts: Uint32Array | Float64Array, name: CountName | CauseName | PartName): number =>
  counts[indexOf[name]]!;

/** Latencies counted on a logarithmic scale, so that a quantile of any span of time is a sum of small arrays. */

/** A scale of `count` bounds that grow by a constant factor. */
export interface LatencyScale {
  /** Upper bound of the first bucket, milliseconds. */
  readonly firstMs: number;
  /** From one bound to the next; a quantile is off by at most this factor's square root. */
  readonly growth: number;
  readonly count: number;
}

/** 0.1 ms to two minutes, quantiles within 6%. */
export const fineScale: LatencyScale = { firstMs: 0.1, growth: 1.125, count: 120 };
/** 0.25 ms to two minutes, quantiles within 19%: what is kept of each function for hours. */
export const coarseScale: LatencyScale = { firstMs: 0.25, growth: Math.SQRT2, count: 39 };

/** The bucket of a latency; what is beyond the last bound goes into the last bucket. */
export function bucketOf(scale: LatencyScale, latencyMs: number): number {
  if (!(latencyMs > scale.firstMs)) return 0;
  const index = Math.ceil(Math.log(latencyMs / scale.firstMs) / Math.log(scale.growth) - 1e-9);
  return Math.min(index, scale.count - 1);
}

export const boundMs = (scale: LatencyScale, bucket: number): number => scale.firstMs * scale.growth ** bucket;

/**
 * The latency that a share `quantile` of all stays at or below, between the bucket's bounds; undefined where there is
 * none.
 */
export function quantileMs(scale: LatencyScale, counts: ArrayLike<number>, quantile: number): number | undefined {
  let total = 0;
  for (let bucket = 0; bucket < scale.count; bucket++) total += counts[bucket] ?? 0;
  if (total === 0) return undefined;
  const rank = Math.max(1, quantile * total);
  let below = 0;
  for (let bucket = 0; bucket < scale.count; bucket++) {
    const here = counts[bucket] ?? 0;
    if (below + here >= rank) {
      const upper = boundMs(scale, bucket);
      const lower = bucket === 0 ? 0 : upper / scale.growth;
      return lower + ((rank - below) / here) * (upper - lower);
    }
    below += here;
  }
  return boundMs(scale, scale.count - 1);
}
