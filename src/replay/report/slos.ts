import type { Outcome } from '../types.ts';
import { finite } from './tally.ts';
import type { SloRow } from './types.ts';

/** A trace may give every invocation an objective of its own; a report does not list them without end. */
const slosMax = 32;

interface Counts {
  requests: number;
  inSlo: number;
  shed: number;
}

/** What came of each objective, where invocations have different ones. */
export class SloCounter {
  readonly #counts = new Map<number, Counts>();
  #isOver = false;
  /** Most invocations have the objective of the one before. */
  #lastMs = NaN;
  #last: Counts = { requests: 0, inSlo: 0, shed: 0 };

  count({ placement, arrivalMs, endMs, sloMs }: Outcome): void {
    if (this.#isOver) return;
    if (sloMs !== this.#lastMs) this.#find(sloMs);
    const counts = this.#last;
    counts.requests++;
    if (placement.kind === 'shed') counts.shed++;
    else if (placement.kind !== 'failed' && endMs - arrivalMs <= sloMs) counts.inSlo++;
  }

  #find(sloMs: number): void {
    let counts = this.#counts.get(sloMs);
    if (counts === undefined) {
      counts = { requests: 0, inSlo: 0, shed: 0 };
      this.#counts.set(sloMs, counts);
      this.#isOver = this.#counts.size > slosMax;
    }
    this.#lastMs = sloMs;
    this.#last = counts;
  }

  /** The tightest first; none where all are alike, or where there are too many to list. */
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
