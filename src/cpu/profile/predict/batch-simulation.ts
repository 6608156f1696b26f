/** An event-by-event simulation of a pool that gathers batches, for which there is no closed formula. */
import { PlanError } from '../../../plan/index.ts';
import type { PoolProfile } from '../../../profile/index.ts';
import { dueMs, splitBatch } from '../../pool/split.ts';
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
 * Poisson arrivals of one row each. Waiting rows are dispatched when they fill the free instances, or when the oldest
 * has waited for the timeout, and split, by the code by which pools do that (Packrat, 3.5). Instances that run together slow each
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
  const arrivals = new Float64Array(total);
  let arrivalMs = 0;
  for (let index = 0; index < total; index++) arrivals[index] = arrivalMs += gapMs();
  const oneRowEach = Array<number>(Math.min(total, candidate.batch)).fill(1);

  let waitSumMs = 0;
  let serviceSumMs = 0;
  let counted = 0;
  let first = 0; // the oldest waiting request
  let nowMs = 0;
  while (first < total) {
    // Due when the waiting rows fill the free instances, or the oldest has waited long enough; an instance that becomes
    // free meanwhile makes room for more.
    let freeRows = 0;
    let nextFreeMs = Infinity;
    for (const instance of instances) {
      if (instance.freeAtMs <= nowMs) freeRows += instance.batch;
      else nextFreeMs = Math.min(nextFreeMs, instance.freeAtMs);
    }
    const fullAtMs = arrivals[first + freeRows - 1] ?? Infinity;
    const atMs =
      freeRows === 0 ? Infinity : Math.max(nowMs, dueMs(fullAtMs, arrivals[first] ?? 0, timeoutMs, Infinity));
    if (nextFreeMs <= atMs) {
      nowMs = nextFreeMs;
      continue;
    }
    nowMs = atMs;
    let waiting = first;
    while (waiting < total && waiting - first < freeRows && (arrivals[waiting] ?? 0) <= nowMs) waiting++;
    const free = instances.filter((instance) => instance.freeAtMs <= nowMs);
    const parts = splitBatch(oneRowEach.slice(0, waiting - first), free);
    const taking = free.flatMap((instance, at) => (parts[at]!.length > 0 ? { instance, rows: parts[at]!.length } : []));
    const together = instances.length - free.length + taking.length;
    const slowdown =
      instances.length === 1 ? 1 : 1 + ((candidate.interference - 1) * (together - 1)) / (instances.length - 1);
    for (const { instance, rows } of taking) {
      const extraMs = idleExtraMs(idle, instance.threads, nowMs - instance.freeAtMs);
      const serviceMs = instance.expectedMs(rows) * slowdown + extraMs;
      instance.freeAtMs = nowMs + serviceMs;
      for (let row = 0; row < rows; row++, first++) {
        if (first < skipped) continue;
        waitSumMs += nowMs - (arrivals[first] ?? 0);
        serviceSumMs += serviceMs;
        counted++;
      }
    }
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
