/** What a function offers the scheduler on the CPU, live and in replays: the scheduler counts calls, its instances rows. */
import { isDeepStrictEqual } from 'node:util';
import { isClose, type CpuOffer, type PoolConfiguration } from '../../schedule/index.ts';

/** The limits of a pool on the rows of a run. */
interface RowLimits {
  readonly batchMax: number;
  readonly batchFixed?: number | undefined;
}

/**
 * How many calls fill a run of up to so many rows: at most `batchMax`, and one where the model's batch size is fixed.
 * The scheduler must not wait for more, since such a batch would never be full.
 */
export const callsIn = (rows: number, { batchMax, batchFixed }: RowLimits): number =>
  batchFixed === undefined ? Math.min(rows, batchMax) : 1;

/**
 * The list of instances as it serves now: a group for each instance that takes calls; undefined if there are none.
 *
 * @param serving the instances that take calls; `batch` is the rows of a run
 */
export function offeredList(
  configuration: PoolConfiguration | undefined,
  serving: Iterable<{ readonly threads: number; readonly batch: number }>,
  limits: RowLimits,
): PoolConfiguration | undefined {
  if (configuration === undefined) return undefined;
  const groups = Array.from(serving, ({ threads, batch: rows }) => {
    const planned = configuration.groups.find((group) => group.threads === threads && group.batch === rows);
    return { ...planned, instances: 1, threads, batch: callsIn(rows, limits) };
  });
  return groups.length === 0 ? undefined : { ...configuration, groups };
}

/** Whether two offers differ so little that the scheduler need not be told of the second. */
export const isAlikeOffer = (one: CpuOffer | null, other: CpuOffer | null | undefined): boolean =>
  one?.cores === other?.cores &&
  isDeepStrictEqual(one?.list, other?.list) &&
  one?.isPinned === other?.isPinned &&
  isClose(one?.bytes, other?.bytes) &&
  isClose(one?.latencyMs, other?.latencyMs) &&
  isClose(one?.loadMs, other?.loadMs);
