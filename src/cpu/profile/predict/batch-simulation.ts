/** An event-by-event simulation of a pool that gathers batches, for which there is no closed formula. */
import { PlanError } from '../../../plan/index.ts';
import type { PoolProfile } from '../../../profile/index.ts';
import { BatchList, type BatchCall } from '../../../schedule/index.ts';
import type { BatchedCandidate } from './candidates.ts';
import type { IdleCost } from './idle-cost.ts';
import { instanceMs } from './instance-time.ts';
import { runMs } from './list-times.ts';
import type { PoolPrediction } from './slowdowns.ts';

export interface BatchSimulationOptions {
  readonly ratePerSecond: number;
  /** Longest that a request waits for the batch to fill. */
  readonly timeoutMs: number;
  /** Extra cost of runs on instances that were idle. */
  readonly idle?: readonly IdleCost[];
  /** Requests that are counted, after a tenth as many that only fill the queue. */
  readonly requests: number;
  readonly seed: number;
}

/** Rows a second that are answered with full batches. */
export function batchCapacityPerSecond({ batch, latencyMs }: BatchedCandidate): number {
  return (batch / latencyMs) * 1000;
}

/**
 * Poisson arrivals of one row each, in batches by the code by which pools make them (Packrat, 3.5). Instances that run
 * together slow each other down in proportion to their number.
 */
export function simulateBatches(
  profile: PoolProfile,
  candidate: BatchedCandidate,
  { ratePerSecond, timeoutMs, idle = [], requests, seed }: BatchSimulationOptions,
): PoolPrediction {
  if (!(ratePerSecond > 0))
    throw new PlanError(`the rate is ${ratePerSecond}, but must be above 0 requests per second`);
  if (ratePerSecond >= batchCapacityPerSecond(candidate)) return { state: 'overloaded' };
  const timesOf = (threads: number, batch: number): ((rows: number) => number) => {
    const times = Float64Array.from({ length: batch + 1 }, (_, rows) =>
      rows === 0 ? 0 : (instanceMs(profile, threads, rows) ?? candidate.latencyMs),
    );
    return (rows) => times[rows] ?? candidate.latencyMs;
  };
  const instances = candidate.groups.flatMap(({ instances: count, threads, batch }) =>
    Array.from({ length: count }, () => ({ threads, batch, expectedMs: timesOf(threads, batch) })),
  );
  const random = randomSource(seed);
  const gapMs = (): number => (-Math.log(1 - random()) * 1000) / ratePerSecond;
  const skipped = Math.ceil(requests / 10);
  const total = requests + skipped;
  let waitSumMs = 0;
  let serviceSumMs = 0;
  let begun = 0;
  let nowMs = 0;
  const wakesMs: number[] = [];
  const list = new BatchList({
    instances,
    timeoutMs,
    wake: (atMs) => wakesMs.push(atMs),
    begin: (instance, calls: readonly BatchCall[], together, idleSinceMs) => {
      const serviceMs = runMs(candidate, idle, instance, calls.length, together, nowMs - idleSinceMs);
      for (const { arrivalMs: sinceMs } of calls) {
        if (begun++ < skipped) continue;
        waitSumMs += nowMs - sinceMs;
        serviceSumMs += serviceMs;
      }
      return serviceMs;
    },
  });
  let arrivalMs = gapMs();
  for (let arrived = 0; ;) {
    const wakeMs = Math.min(...wakesMs);
    nowMs = Math.min(arrivalMs, wakeMs);
    if (nowMs === Infinity) break;
    if (wakeMs <= arrivalMs) wakesMs.splice(wakesMs.indexOf(wakeMs), 1);
    else {
      list.add({ rows: 1, arrivalMs, deadlineMs: Infinity, alone: false });
      arrivalMs = ++arrived < total ? arrivalMs + gapMs() : Infinity;
    }
    list.decide(nowMs);
  }
  const waitMs = waitSumMs / requests;
  const serviceMs = serviceSumMs / requests;
  return { state: 'stable', latencyMs: waitMs + serviceMs, serviceMs };
}

/** Numbers in [0, 1) from a 32-bit seed: a Weyl sequence whose steps are mixed. */
function randomSource(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let value = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    value = Math.imul(value ^ (value >>> 15), 0x735a2d97);
    return ((value ^ (value >>> 15)) >>> 0) / 2 ** 32;
  };
}
