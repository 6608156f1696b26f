/** What a pool does at a rate, and how much longer its requests take than profiled, by how many run at once. */

/** What a configuration does at a rate; milliseconds, means over requests. */
export type PoolPrediction =
  | { readonly state: 'stable'; readonly latencyMs: number; readonly serviceMs: number }
  /** Requests come faster than they can be answered: the queue grows without limit. */
  | { readonly state: 'overloaded' };

/** Weight of a window with many answers. It is large: service times vary little, so a window's mean is accurate. */
const newest = 0.5;
/** So many answers count half of that. */
const halfAnswers = 10;
/** Observation corrects within this factor either way; a pool that is further off needs a new profile. */
const factorMax = 4;

/**
 * Observed over profiled service time: how much slower the machine is than when it was measured, plus the handler.
 * Kept apart by the number of requests that run at once: what a light load shows of a request alone says little about
 * one beside others, and one factor for both would carry the error of the one to the other.
 */
export class Slowdowns {
  /** By the number of running requests, from 1. */
  readonly #seen: (number | undefined)[] = [];

  /** Of a request that starts as one of so many: as seen, or as the nearest number that was. */
  at(running: number): number {
    for (let apart = 0; apart < this.#seen.length + running; apart++) {
      // What more requests do says more about a busy pool than what fewer do.
      const near = this.#seen[running - 1 + apart] ?? this.#seen[running - 1 - apart];
      if (near !== undefined) return near;
    }
    return 1;
  }

  /** @param ratio observed over profiled, of so many answers of one window */
  observe(running: number, ratio: number, answers: number): void {
    const before = this.#seen[running - 1] ?? this.at(running);
    const weight = (newest * answers) / (answers + halfAnswers);
    this.#seen[running - 1] = before + weight * (Math.min(factorMax, Math.max(1 / factorMax, ratio)) - before);
  }
}
