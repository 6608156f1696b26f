/** What runs take on the instances of a list, as profiled: in the prediction of a pool, and in a replay. */
import { instancesIn, type BatchPlace } from '../../../schedule/index.ts';
import type { Candidate } from './candidates.ts';
import { idleExtraMs, type IdleCost } from './idle-cost.ts';

/**
 * Milliseconds of a run that begins as one of `together` runs of the list, on an instance that was idle for `idleMs`.
 * Instances slow each other down in proportion to how many are at work.
 *
 * @param candidate undefined: the list was not profiled as one
 */
export function runMs(
  candidate: Candidate | undefined,
  idle: readonly IdleCost[],
  { threads, expectedMs }: Pick<BatchPlace, 'expectedMs'> & { readonly threads: number },
  rows: number,
  together: number,
  idleMs: number,
): number {
  const extraMs = idleExtraMs(idle, threads, idleMs);
  if (candidate === undefined) return expectedMs(rows) + extraMs;
  if (candidate.kind === 'unbatched') {
    const { serviceTimeMs } = candidate;
    return serviceTimeMs[Math.min(together, serviceTimeMs.length) - 1]! + extraMs;
  }
  const others = instancesIn(candidate) - 1;
  const slowdown = others === 0 ? 1 : 1 + ((candidate.interference - 1) * (together - 1)) / others;
  return expectedMs(rows) * slowdown + extraMs;
}
