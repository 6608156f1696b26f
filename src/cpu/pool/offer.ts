/** What a function offers the scheduler on the CPU, live and in replays: the scheduler counts calls, its instances rows. */
import { isDeepStrictEqual } from 'node:util';
import { isClose, type CpuOffer, type PoolConfiguration } from '../../schedule/index.ts';

/** As in the limits of a pool. */
interface RowLimits {
  readonly batchMax: number;
  readonly batchFixed?: number | undefined;
}

/** Calls of a run of up to so many rows: with fewer at once than fit into it, a batch would never be full. */
export const callsIn = (rows: number, { batchMax, batchFixed }: RowLimits): number =>
  batchFixed === undefined ? Math.min(rows, batchMax) : 1;

/**
 * A list as its instances that take calls now make it, each a group of its own; undefined: there are none.
 *
 * @param serving with the rows that each takes
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

/** Whether the scheduler need not be told of an offer that follows another. */
export const isAlikeOffer = (one: CpuOffer | null, other: CpuOffer | null | undefined): boolean =>
  one?.cores === other?.cores &&
  isDeepStrictEqual(one?.list, other?.list) &&
  one?.isPinned === other?.isPinned &&
  isClose(one?.bytes, other?.bytes) &&
  isClose(one?.latencyMs, other?.latencyMs) &&
  isClose(one?.loadMs, other?.loadMs);
