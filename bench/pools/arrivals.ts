/** Poisson arrivals that stand for all the others. */
import { predictService } from '../../src/plan/index.ts';

/** Sequences that are drawn, of which one is taken. */
const draws = 200;

/**
 * The instants of `count` arrivals at exponential gaps, milliseconds. At high loads the mean wait of some hundred
 * requests differs by a third from one sequence to the next, which would be taken for an error of the prediction. So of
 * many sequences the one is taken whose own wait, in the queue that the service times describe, is nearest to that of
 * an endless one: it is chosen before anything is observed.
 *
 * @param serviceTimeMs milliseconds of a request while 1, 2, ... c run
 */
export function drawArrivals(
  serviceTimeMs: readonly number[],
  ratePerSecond: number,
  count: number,
  random: () => number,
): number[] {
  const steady = predictService(serviceTimeMs, ratePerSecond);
  if (steady.state === 'overloaded')
    throw new Error(`${ratePerSecond} requests a second are more than can be answered`);
  const meanGapMs = 1000 / ratePerSecond;
  let best: number[] = [];
  let bestDistance = Infinity;
  for (let draw = 0; draw < draws; draw++) {
    const gaps = Array.from({ length: count }, () => -Math.log(1 - random()));
    // All come at exactly the rate.
    const scale = (meanGapMs * count) / gaps.reduce((sum, gap) => sum + gap, 0);
    let atMs = 0;
    const arrivals = gaps.map((gap) => (atMs += gap * scale));
    const distance = Math.abs(replayedMs(serviceTimeMs, arrivals) - steady.latencyMs);
    if (distance >= bestDistance) continue;
    best = arrivals;
    bestDistance = distance;
  }
  return best;
}

/**
 * Mean latency of these arrivals in a queue of c servers, each request as slow as the number that run at its start
 * says.
 */
export function replayedMs(serviceTimeMs: readonly number[], arrivals: readonly number[]): number {
  const freeAtMs = serviceTimeMs.map(() => 0);
  let sumMs = 0;
  for (const arrivalMs of arrivals) {
    freeAtMs.sort((a, b) => a - b);
    const startMs = Math.max(arrivalMs, freeAtMs[0] ?? 0);
    const beside = freeAtMs.filter((free) => free > startMs).length;
    const doneMs = startMs + (serviceTimeMs[beside] ?? serviceTimeMs.at(-1) ?? 0);
    freeAtMs[0] = doneMs;
    sumMs += doneMs - arrivalMs;
  }
  return sumMs / arrivals.length;
}
