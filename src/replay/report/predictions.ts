import type { Outcome } from '../types.ts';
import { Sketch } from './sketch.ts';
import { finite } from './tally.ts';

/** Kinds of placement, in the order of the report. */
const kinds = ['gpu warm', 'gpu partial', 'gpu cold', 'cpu', 'worker'] as const;
const sketch = { exactMax: 2 ** 10, precisionBits: 7 } as const;

/** The predictions of one kind of placement. */
export type PredictionRow = ReturnType<PredictionCounter['rows']>[number];

/**
 * How far the scheduler's prediction of an invocation's end was off, late or early, when it chose the place. Shares are
 * of the invocation's latency: the mean is the sum of all errors over the sum of all latencies.
 */
export class PredictionCounter {
  readonly #kinds = kinds.map(() => ({ errorShare: new Sketch(sketch), errorMs: 0, latencyMs: 0 }));

  /** Counts an answered invocation with a predicted end. */
  count({ placement, arrivalMs, endMs, predictedEndMs }: Outcome): void {
    if (predictedEndMs === undefined) return;
    let kind = 0;
    if (placement.kind === 'gpu') kind = placement.residency === 'warm' ? 0 : placement.residency === 'partial' ? 1 : 2;
    else if (placement.kind === 'cpu') kind = 3;
    else if (placement.kind === 'worker') kind = 4;
    else return;
    const counted = this.#kinds[kind]!;
    const latencyMs = endMs - arrivalMs;
    const errorMs = Math.abs(endMs - predictedEndMs);
    counted.errorMs += errorMs;
    counted.errorShare.record(latencyMs === 0 ? 0 : errorMs / latencyMs);
    counted.latencyMs += latencyMs;
  }

  rows() {
    return kinds.flatMap((placement, index) => {
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
