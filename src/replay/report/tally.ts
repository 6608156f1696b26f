import type { Outcome } from '../types.ts';
import { Sketch, type SketchOptions } from './sketch.ts';

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
    // The fields of the type are those of the table.
    return Object.fromEntries(tallyFields.map((field) => [field, tally[field](this)])) as Tally;
  }
}

const quantile = ({ latencyMs }: TallyCounter, share: number): number | null => finite(latencyMs.quantile(share));

const shareOf = (part: number, { requests }: TallyCounter): number | null =>
  requests === 0 ? null : rounded(part / requests);

/** In the order of the columns in a CSV. */
const tally = {
  /** Arrived. */
  requests: ({ requests }) => requests,
  /** Latency of the answered ones, by the nearest rank. */
  p50_ms: (counter) => quantile(counter, 0.5),
  p95_ms: (counter) => quantile(counter, 0.95),
  p99_ms: (counter) => quantile(counter, 0.99),
  p999_ms: (counter) => quantile(counter, 0.999),
  mean_ms: ({ latencyMs }) => finite(latencyMs.mean),
  max_ms: ({ latencyMs }) => finite(latencyMs.max),
  /** Share of the requests that were answered within their SLO. */
  goodput: (counter) => shareOf(counter.inSlo, counter),
  /** Answered with none of the function's layers resident before, */
  cold_starts: ({ coldStarts }) => coldStarts,
  cold_start_rate: (counter) => shareOf(counter.coldStarts, counter),
  /** and with some of them. */
  partial_starts: ({ partialStarts }) => partialStarts,
  partial_start_rate: (counter) => shareOf(counter.partialStarts, counter),
  /** Refused, or given up in the queue. */
  shed: ({ shed }) => shed,
  /** Answered by a CPU pool. */
  offloaded: ({ offloaded }) => offloaded,
  /** Answered by workers on other machines. */
  workers: ({ workers }) => workers,
  failed: ({ failed }) => failed,
  evictions: ({ evictions }) => evictions,
} satisfies Record<string, (counter: TallyCounter) => number | null>;

type Table = typeof tally;

export const tallyFields = Object.keys(tally) as (keyof Table)[];

type Field<Name extends keyof Table> = { readonly [Key in Name]: ReturnType<Table[Key]> };

/**
 * Counts and latencies of some invocations: all of them, those of a minute, of a function, of a model. Older reports
 * have no workers.
 */
export type Tally = Field<Exclude<keyof Table, 'workers'>> & Partial<Field<'workers'>>;

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
