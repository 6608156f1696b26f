/** An event-by-event simulation of a pool that gathers batches, for which there is no closed formula. */
import { PlanError } from '../../../plan/index.ts';
import type { PoolProfile } from '../../../profile/index.ts';
import { batchDueMs, nextBatch, type BatchCall } from '../../../schedule/index.ts';
import type { BatchedCandidate } from './candidates.ts';
import { idleExtraMs, type IdleCost } from './idle-cost.ts';
import { instanceMs } from './instance-time.ts';
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
 * Poisson arrivals of one row each, in batches by the code by which pools make them (Packrat, 3.5). Instances that run together slow each
 * other down in proportion to their number.
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
    Array.from({ length: count }, () => ({ threads, batch, expectedMs: timesOf(threads, batch), freeAtMs: 0 })),
  );
  const random = randomSource(seed);
  const gapMs = (): number => (-Math.log(1 - random()) * 1000) / ratePerSecond;
  const skipped = Math.ceil(requests / 10);
  const total = requests + skipped;
  let arrived = 0;
  let arrivalMs = gapMs();
  const waiting: BatchCall[] = [];
  let waitSumMs = 0;
  let serviceSumMs = 0;
  let counted = 0;
  let begun = 0;
  let nowMs = 0;
  while (begun < total) {
    const free = instances.filter((instance) => instance.freeAtMs <= nowMs);
    const [largest] = free;
    let dueMs = Infinity;
    if (waiting.length > 0 && largest !== undefined) {
      const capacity = free.reduce((sum, { batch }) => sum + batch, 0);
      dueMs = batchDueMs(waiting, capacity, timeoutMs, largest.expectedMs(largest.batch));
    }
    if (dueMs > nowMs) {
      // Until then another row may come, or another instance be free.
      let nextMs = Math.min(dueMs, arrivalMs);
      for (const { freeAtMs } of instances) if (freeAtMs > nowMs) nextMs = Math.min(nextMs, freeAtMs);
      nowMs = nextMs;
      if (arrivalMs > nowMs) continue;
      waiting.push({ rows: 1, arrivalMs, deadlineMs: Infinity, alone: false });
      arrivalMs = ++arrived < total ? arrivalMs + gapMs() : Infinity;
      continue;
    }
    const parts = nextBatch(waiting, free, undefined);
    const taking = free.flatMap((instance, at) => (parts[at]!.length > 0 ? { instance, calls: parts[at]! } : []));
    const together = instances.length - free.length + taking.length;
    const slowdown =
      instances.length === 1 ? 1 : 1 + ((candidate.interference - 1) * (together - 1)) / (instances.length - 1);
    let taken = 0;
    for (const { instance, calls } of taking) {
      const extraMs = idleExtraMs(idle, instance.threads, nowMs - instance.freeAtMs);
      const serviceMs = instance.expectedMs(calls.length) * slowdown + extraMs;
      instance.freeAtMs = nowMs + serviceMs;
      taken += calls.length;
      for (const call of calls) {
        if (begun++ < skipped) continue;
        waitSumMs += nowMs - waiting[call]!.arrivalMs;
        serviceSumMs += serviceMs;
        counted++;
      }
    }
    waiting.splice(0, taken);
  }
  const waitMs = waitSumMs / counted;
  const serviceMs = serviceSumMs / counted;
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
