/** What a report counts of invocations as they end: how they ended, by SLO as well, and how far predictions were off. */
import type { PredictionRow, SloRow, Tally } from '../../report/index.ts';
import type { Start } from '../../schedule/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { Outcome } from '../types.ts';
import { Sketch, type SketchOptions } from './sketch.ts';

const summed = [
  'requests',
  'inSlo',
  'coldStarts',
  'partialStarts',
  'diskStarts',
  'shed',
  'offloaded',
  'workers',
  'failed',
  'evictions',
] as const;

/** Whether it was answered within its SLO. */
export const isInTime = ({ placement: { kind }, arrivalMs, endMs, sloMs }: Outcome): boolean =>
  kind !== 'shed' && kind !== 'failed' && endMs - arrivalMs <= sloMs;

/** Counts invocations, and their latencies. */
export class TallyCounter {
  readonly latencyMs: Sketch;
  requests = 0;
  inSlo = 0;
  coldStarts = 0;
  partialStarts = 0;
  diskStarts = 0;
  shed = 0;
  offloaded = 0;
  workers = 0;
  failed = 0;
  evictions = 0;

  constructor(options: SketchOptions) {
    this.latencyMs = new Sketch(options);
  }

  count({ placement, arrivalMs, endMs, sloMs }: Outcome): void {
    this.requests++;
    switch (placement.kind) {
      case 'shed':
        this.shed++;
        return;
      case 'failed':
        this.failed++;
        return;
      case 'cpu':
        this.offloaded++;
        if (placement.coldStart === true) this.coldStarts++;
        break;
      case 'worker':
        this.workers++;
        break;
      case 'gpu':
        if (placement.residency === 'cold') this.coldStarts++;
        else if (placement.residency === 'partial') this.partialStarts++;
        else if (placement.residency === 'disk') this.diskStarts++;
        break;
    }
    const latencyMs = endMs - arrivalMs;
    if (latencyMs <= sloMs) this.inSlo++;
    this.latencyMs.record(latencyMs);
  }

  merge(other: TallyCounter): void {
    for (const each of summed) this[each] += other[each];
    this.latencyMs.merge(other.latencyMs);
  }

  result(): Tally {
    const { requests, latencyMs } = this;
    const quantile = (share: number): number | null => finite(latencyMs.quantile(share));
    const shareOf = (part: number): number | null => (requests === 0 ? null : rounded(part / requests));
    return {
      requests,
      p50_ms: quantile(0.5),
      p95_ms: quantile(0.95),
      p99_ms: quantile(0.99),
      p999_ms: quantile(0.999),
      mean_ms: finite(latencyMs.mean),
      max_ms: finite(latencyMs.max),
      goodput: shareOf(this.inSlo),
      cold_starts: this.coldStarts,
      cold_start_rate: shareOf(this.coldStarts),
      partial_starts: this.partialStarts,
      partial_start_rate: shareOf(this.partialStarts),
      disk_starts: this.diskStarts,
      disk_start_rate: shareOf(this.diskStarts),
      shed: this.shed,
      offloaded: this.offloaded,
      workers: this.workers,
      failed: this.failed,
      evictions: this.evictions,
    };
  }
}

/** Limit of listed SLOs: a trace may give every invocation its own. */
const slosMax = 32;

interface Counts {
  requests: number;
  inSlo: number;
  shed: number;
}

/** Results by SLO, if invocations have different ones. */
export class SloCounter {
  readonly #counts = new Map<number, Counts>();
  #isOver = false;
  /** Most invocations have the same SLO as the one before. */
  #lastMs = NaN;
  #last: Counts = { requests: 0, inSlo: 0, shed: 0 };

  count(outcome: Outcome): void {
    if (this.#isOver) return;
    const { placement, sloMs } = outcome;
    if (sloMs !== this.#lastMs) this.#find(sloMs);
    const counts = this.#last;
    counts.requests++;
    if (placement.kind === 'shed') counts.shed++;
    else if (isInTime(outcome)) counts.inSlo++;
  }

  #find(sloMs: number): void {
    this.#lastMs = sloMs;
    this.#last = getOrMake(this.#counts, sloMs, () => ({ requests: 0, inSlo: 0, shed: 0 }));
    this.#isOver = this.#counts.size > slosMax;
  }

  /** The tightest first; none if all are the same, or if there are too many to list. */
  rows(): SloRow[] {
    if (this.#isOver || this.#counts.size < 2) return [];
    return [...this.#counts]
      .sort(([a], [b]) => a - b)
      .map(([sloMs, { requests, inSlo, shed }]) => ({
        slo_ms: sloMs,
        requests,
        goodput: finite(inSlo / requests),
        shed,
      }));
  }
}

/** Kinds of placement, in the order of the report. */
const gpuStarts = ['warm', 'partial', 'cold', 'disk'] as const satisfies readonly Start[];
const placements = [...gpuStarts.map((start) => `gpu ${start}`), 'cpu', 'worker'];
const errorSketch = { exactMax: 2 ** 10, precisionBits: 7 } as const;

/**
 * How far the scheduler's prediction of an invocation's end was off, late or early, when it chose the place. Shares are
 * of the invocation's latency: the mean is the sum of all errors over the sum of all latencies.
 */
export class PredictionCounter {
  readonly #kinds = placements.map(() => ({ errorShare: new Sketch(errorSketch), errorMs: 0, latencyMs: 0 }));

  /** Counts an answered invocation with a predicted end. */
  count({ placement, arrivalMs, endMs, predictedEndMs }: Outcome): void {
    if (predictedEndMs === undefined) return;
    let kind = 0;
    if (placement.kind === 'gpu') kind = gpuStarts.indexOf(placement.residency);
    else if (placement.kind === 'cpu') kind = gpuStarts.length;
    else if (placement.kind === 'worker') kind = gpuStarts.length + 1;
    else return;
    const counted = this.#kinds[kind]!;
    const latencyMs = endMs - arrivalMs;
    const errorMs = Math.abs(endMs - predictedEndMs);
    counted.errorMs += errorMs;
    counted.errorShare.record(latencyMs === 0 ? 0 : errorMs / latencyMs);
    counted.latencyMs += latencyMs;
  }

  rows(): PredictionRow[] {
    return placements.flatMap((placement, index) => {
      const { errorMs, errorShare, latencyMs } = this.#kinds[index]!;
      const { count } = errorShare;
      if (count === 0) return [];
      return [
        {
          placement,
          requests: count,
          error_mean_ms: finite(errorMs / count),
          error_mean_share: latencyMs === 0 ? 0 : finite(errorMs / latencyMs),
          error_p90_share: finite(errorShare.quantile(0.9)),
        },
      ];
    });
  }
}

/** Rounds milliseconds to nanoseconds, and shares to six digits: the rest is rounding noise of the additions. */
export function rounded(value: number): number {
  return Math.round(value * 1e6) / 1e6;
}

/** In an order that does not depend on which came first. */
export function sortedRecord(counts: ReadonlyMap<string, number>): Record<string, number> {
  return Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

export function finite(value: number): number | null {
  return Number.isFinite(value) ? rounded(value) : null;
}
