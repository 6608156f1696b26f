import { getOrMake } from '../../tools/index.ts';
import type { Outcome } from '../types.ts';
import { finite } from './tally.ts';

/** Limit of listed SLOs: a trace may give every invocation its own. */
const slosMax = 32;

/** Results of the invocations with one SLO. */
export type SloRow = ReturnType<SloCounter['rows']>[number];

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

  count({ placement, arrivalMs, endMs, sloMs }: Outcome): void {
    if (this.#isOver) return;
    if (sloMs !== this.#lastMs) this.#find(sloMs);
    const counts = this.#last;
    counts.requests++;
    if (placement.kind === 'shed') counts.shed++;
    else if (placement.kind !== 'failed' && endMs - arrivalMs <= sloMs) counts.inSlo++;
  }

  #find(sloMs: number): void {
    this.#lastMs = sloMs;
    this.#last = getOrMake(this.#counts, sloMs, () => ({ requests: 0, inSlo: 0, shed: 0 }));
    this.#isOver = this.#counts.size > slosMax;
  }

  /** The tightest first; none if all are the same, or if there are too many to list. */
  rows() {
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
