import { bucketOf, type LatencyScale } from './latency-scale.ts';

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
const indexOf = Object.fromEntries(names.map((name, index) => [name, index])) as Record<
  CountName | CauseName | PartName,
  number
>;

/** What the end of an invocation counts. */
export interface Ended {
  readonly names: readonly (CountName | CauseName)[];
  /** Of one that was answered: its parts, in tenths of a millisecond in the order of {@link partNames}, and all of it. */
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

  ended({ names: ofEnd, answer }: Ended, atMs: number): void {
    const slot = this.#slot(atMs);
    if (slot < 0) return;
    const first = slot * width;
    for (const name of ofEnd) this.#counts[first + indexOf[name]]!++;
    if (answer === undefined) return;
    const firstPart = first + indexOf[partNames[0]];
    for (let part = 0; part < partNames.length; part++) this.#counts[firstPart + part]! += answer.tenths[part]!;
    const at = slot * this.scale.count + bucketOf(this.scale, answer.latencyMs);
    const counted = this.#latencies[at]!;
    const most = this.#latencies instanceof Uint16Array ? 0xffff : 0xffff_ffff;
    if (counted < most) this.#latencies[at] = counted + 1;
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
