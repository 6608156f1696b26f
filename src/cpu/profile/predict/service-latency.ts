/** SERF's queue for real pools: idle instances slow down, and run times vary. */
import { predictService } from '../../../plan/index.ts';
import type { UnbatchedCandidate } from './candidates.ts';
import { idleExtraMs, type IdleCost } from './idle-cost.ts';

/** What a configuration does at a rate; milliseconds, means over requests. */
export type PoolPrediction =
  | { readonly state: 'stable'; readonly latencyMs: number; readonly serviceMs: number }
  /** Requests come faster than they can be answered: the queue grows without limit. */
  | { readonly state: 'overloaded' };

/**
 * Mean latency at a rate, by SERF's formula with two additions. First, SERF's service times are those of back-to-back
 * requests. The share of requests that find an instance idle takes longer, as measured after gaps of that length.
 * Second, SERF's wait assumes constant service times. If they vary, the wait is longer by their variance over the
 * squared mean (Pollaczek and Khinchin for one instance; a usual approximation for several).
 */
export function predictUnbatched(
  { serviceTimeMs, variation, groups }: UnbatchedCandidate,
  costs: readonly IdleCost[],
  ratePerSecond: number,
): PoolPrediction {
  const plain = predictService(serviceTimeMs, ratePerSecond);
  if (plain.state === 'overloaded') return plain;
  const { utilisation, waitProbability } = plain;
  const gapMs = idleGapMs(serviceTimeMs.length, utilisation, ratePerSecond);
  const extraMs = (1 - waitProbability) * idleExtraMs(costs, groups[0]?.threads ?? 1, gapMs);
  const slowed = predictService(
    serviceTimeMs.map((timeMs) => timeMs + extraMs),
    ratePerSecond,
  );
  // This close to the pool's capacity hardly any instance is ever idle.
  const { waitMs, serviceMs } = slowed.state === 'overloaded' ? plain : slowed;
  return { state: 'stable', latencyMs: waitMs * (1 + variation) + serviceMs, serviceMs };
}

/** Mean time that each of `instances` is idle for each request that it gets, milliseconds. */
export function idleGapMs(instances: number, utilisation: number, ratePerSecond: number): number {
  return ratePerSecond > 0 ? (1000 * instances * (1 - utilisation)) / ratePerSecond : Infinity;
}
