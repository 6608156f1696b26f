import type { Outcome } from '../types.ts';
import { Sketch, type SketchOptions } from './sketch.ts';
import type { Tally } from './types.ts';

const summed = [
  'requests',
  'inSlo',
  'coldStarts',
  'partialStarts',
  'shed',
  'offloaded',
  'workers',
  'failed',
  'evictions',
] as const;

/** Counts invocations as they end. */
export class TallyCounter {
  readonly latencyMs: Sketch;
  requests = 0;
  inSlo = 0;
  coldStarts = 0;
  partialStarts = 0;
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
    const { latencyMs, requests } = this;
    const share = (part: number): number | null => (requests === 0 ? null : rounded(part / requests));
    return {
      requests,
      p50_ms: finite(latencyMs.quantile(0.5)),
      p95_ms: finite(latencyMs.quantile(0.95)),
      p99_ms: finite(latencyMs.quantile(0.99)),
      p999_ms: finite(latencyMs.quantile(0.999)),
      mean_ms: finite(latencyMs.mean),
      max_ms: finite(latencyMs.max),
      goodput: share(this.inSlo),
      cold_starts: this.coldStarts,
      cold_start_rate: share(this.coldStarts),
      partial_starts: this.partialStarts,
      partial_start_rate: share(this.partialStarts),
      shed: this.shed,
      offloaded: this.offloaded,
      workers: this.workers,
      failed: this.failed,
      evictions: this.evictions,
    };
  }
}

/** Rounds milliseconds to nanoseconds, and shares to six digits: the rest is rounding noise of the additions. */
export function rounded(value: number): number {
  return Math.round(value * 1e6) / 1e6;
}

export function finite(value: number): number | null {
  return Number.isFinite(value) ? rounded(value) : null;
}
