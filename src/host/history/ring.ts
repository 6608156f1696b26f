import { lateCauses, type Miss } from '../calls/miss-causes.ts';
import { placeNames } from '../calls/placement.ts';

/** Counts of each time step: `offered` by arrival, all others by the end of the invocation. */
export const countNames = ['offered', 'in_slo', 'late', 'shed', 'failed', 'cold', ...placeNames] as const;
export type CountName = (typeof countNames)[number];

/** Late calls by their cause. `client`: calls that ended by the client's mistake or disconnect. */
export const causeNames = [...lateCauses, 'client'] as const;
export type CauseName = (typeof causeNames)[number];

/** Parts of an answer's time, summed in tenths of a millisecond. */
export const partNames = ['partQueue', 'partLoad', 'partHandler', 'partModel', 'partHost'] as const;
export type PartName = (typeof partNames)[number];

/** Time of calls beyond their SLO, and as much of it as nothing explains; in tenths of a millisecond too. */
export const lateNames = ['lateTenths', 'unexplainedTenths'] as const;
type LateName = (typeof lateNames)[number];

/** What instances have read from disk, in kibibytes, and how long they waited for that, in tenths of a millisecond. */
const diskNames = ['diskKibibytes', 'diskTenths'] as const;
type DiskName = (typeof diskNames)[number];

const names = [...countNames, ...causeNames, ...partNames, ...lateNames, ...diskNames];
const width = names.length;
export const indexOf = Object.fromEntries(names.map((name, index) => [name, index])) as Record<
  CountName | CauseName | PartName | LateName | DiskName,
  number
>;

/** What the end of an invocation adds to the counts. */
export interface Ended {
  /** Indices of counts, as in {@link indexOf}. */
  readonly counted: readonly number[];
  readonly miss: Miss | undefined;
  /** For an answered call: its parts as in {@link partNames}, in tenths of a millisecond, and its latency. */
  readonly answer: { readonly tenths: readonly number[]; readonly latencyMs: number } | undefined;
}

const pageBytes = 4096;

export interface RingOptions {
  readonly stepMs: number;
  readonly steps: number;
  readonly scale: LatencyScale;
}

/** Steps of `stepMs` from one instant up to another. */
export interface HistorySpan {
  readonly stepMs: number;
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * The last `steps` time steps, in typed arrays of a fixed size. New steps overwrite old ones; nothing is allocated, and
 * skipping idle steps costs nothing.
 */
export class Ring {
  readonly stepMs: number;
  readonly steps: number;
  readonly scale: LatencyScale;
  readonly #counts: Uint32Array;
  readonly #latencies: Uint32Array | Uint16Array;
  /** Which step a slot holds; steps are numbered from 1970. */
  readonly #stepOfSlot: Float64Array;
  readonly #slotBytes: number;
  readonly #onGrown: (bytes: number) => void;
  /** Memory that it has written to: the system gives a slot none before. */
  usedBytes = 0;

  /** @param onGrown told of each growth of {@link usedBytes} */
  constructor({ stepMs, steps, scale }: RingOptions, onGrown: (bytes: number) => void = () => undefined) {
    this.stepMs = stepMs;
    this.steps = steps;
    this.scale = scale;
    this.#counts = new Uint32Array(steps * width);
    // One function has fewer than 65,535 answers in a bucket of a 10-second step; the count stops there.
    this.#latencies = stepMs <= 10_000 ? new Uint16Array(steps * scale.count) : new Uint32Array(steps * scale.count);
    this.#stepOfSlot = new Float64Array(steps).fill(-1);
    this.#slotBytes = width * this.#counts.BYTES_PER_ELEMENT + scale.count * this.#latencies.BYTES_PER_ELEMENT;
    this.#onGrown = onGrown;
    this.#grow(this.#stepOfSlot.byteLength + 2 * pageBytes);
  }

  count(name: CountName | CauseName | DiskName, atMs: number, by = 1): void {
    const slot = this.#slot(atMs);
    if (slot >= 0) this.#counts[slot * width + indexOf[name]]! += Math.round(by);
  }

  ended({ counted, miss, answer }: Ended, atMs: number): void {
    const slot = this.#slot(atMs);
    if (slot < 0) return;
    const first = slot * width;
    for (const index of counted) this.#counts[first + index]!++;
    if (miss !== undefined) {
      this.#counts[first + indexOf.lateTenths]! += Math.round(miss.lateMs * 10);
      this.#counts[first + indexOf.unexplainedTenths]! += Math.round(miss.unexplainedMs * 10);
    }
    if (answer === undefined) return;
    const firstPart = first + indexOf[partNames[0]];
    for (let part = 0; part < partNames.length; part++) this.#counts[firstPart + part]! += answer.tenths[part]!;
    const at = slot * this.scale.count + bucketOf(this.scale, answer.latencyMs);
    const answers = this.#latencies[at]!;
    const most = this.#latencies instanceof Uint16Array ? 0xffff : 0xffff_ffff;
    if (answers < most) this.#latencies[at] = answers + 1;
  }

  /** Drops the steps after an instant. */
  forgetAfter(atMs: number): void {
    const step = Math.floor(atMs / this.stepMs);
    // Not -1: the slot's memory has been counted.
    for (const [slot, held] of this.#stepOfSlot.entries()) if (held > step) this.#stepOfSlot[slot] = 0;
  }

  /** Counts of the step that begins at `step * stepMs`; undefined if nothing was counted. */
  counts(step: number): Uint32Array | undefined {
    const slot = this.#held(step);
    return slot < 0 ? undefined : this.#counts.subarray(slot * width, (slot + 1) * width);
  }

  /** Sums of the counts from one step up to another. Allocates nothing per step: the page asks for all functions. */
  sums(fromStep: number, toStep: number): Float64Array {
    const sums = new Float64Array(width);
    for (let step = fromStep; step < toStep; step++) {
      const slot = this.#held(step);
      if (slot < 0) continue;
      for (let at = 0; at < width; at++) sums[at]! += this.#counts[slot * width + at]!;
    }
    return sums;
  }

  /** Number of latencies in the step. */
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

  #grow(bytes: number): void {
    this.usedBytes += bytes;
    this.#onGrown(bytes);
  }

  #held(step: number): number {
    const slot = step % this.steps;
    return this.#stepOfSlot[slot] === step ? slot : -1;
  }

  /** The slot of an instant, emptied if it held an older step; -1 if the instant is no longer kept. */
  #slot(atMs: number): number {
    const step = Math.floor(atMs / this.stepMs);
    const slot = step % this.steps;
    const held = this.#stepOfSlot[slot]!;
    if (held > step) return -1;
    if (held < step) {
      if (held < 0) this.#grow(this.#slotBytes);
      this.#counts.fill(0, slot * width, (slot + 1) * width);
      this.#latencies.fill(0, slot * this.scale.count, (slot + 1) * this.scale.count);
      this.#stepOfSlot[slot] = step;
    }
    return slot;
  }
}

export const countIn = (
  counts: Uint32Array | Float64Array,
  name: CountName | CauseName | PartName | LateName | DiskName,
): number => counts[indexOf[name]]!;

/** Latencies are counted on a logarithmic scale, so that a quantile of any span is computed from a few small arrays. */

/** A scale of `count` bounds that grow by a constant factor. */
export interface LatencyScale {
  /** Upper bound of the first bucket, milliseconds. */
  readonly firstMs: number;
  /** Factor between bounds; a quantile is off by at most its square root. */
  readonly growth: number;
  readonly count: number;
}

/** 0.1 ms to two minutes, quantiles within 6%. */
export const fineScale: LatencyScale = { firstMs: 0.1, growth: 1.125, count: 120 };
/** 0.25 ms to two minutes, quantiles within 19%; for the hours kept of each function. */
export const coarseScale: LatencyScale = { firstMs: 0.25, growth: Math.SQRT2, count: 39 };

/** The bucket of a latency; the last one also holds all that is beyond its bound. */
export function bucketOf(scale: LatencyScale, latencyMs: number): number {
  if (!(latencyMs > scale.firstMs)) return 0;
  const index = Math.ceil(Math.log(latencyMs / scale.firstMs) / Math.log(scale.growth) - 1e-9);
  return Math.min(index, scale.count - 1);
}

export const boundMs = (scale: LatencyScale, bucket: number): number => scale.firstMs * scale.growth ** bucket;

/**
 * The latency that a share `quantile` of all stays at or below, between the bucket's bounds; undefined without
 * latencies.
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
