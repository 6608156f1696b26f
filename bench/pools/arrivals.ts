/** Representative Poisson arrivals. */
import { predictService } from '../../src/plan/index.ts';

/** Number of random sequences of which one is chosen. */
const draws = 200;

/**
 * The instants of `count` arrivals with exponential gaps, milliseconds. At high loads the mean wait of some hundred
 * requests differs by a third between sequences, which would look like an error of the prediction. So the sequence is
 * chosen, before anything is observed, whose wait in the queue with these service times is nearest to that of an
 * endless one.
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
    // All sequences have exactly this rate.
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
 * Mean latency of these arrivals in a queue of c servers; the number of running requests at its start sets a request's
 * time.
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
