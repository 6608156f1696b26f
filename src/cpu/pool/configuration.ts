/** Configurations as data: what they contain, and how to get from one to another. */
import type { PoolConfiguration, PoolGroup, ReconfigurationKind } from '../types.ts';

/** Most rows of a run. */
export const batchMax = 65_536;

/** One instance of a configuration. */
export type PlannedInstance = Omit<PoolGroup, 'instances'>;

/** The instances one by one: most threads first, then the largest batch first. */
export function instancesOf({ groups }: Pick<PoolConfiguration, 'groups'>): PlannedInstance[] {
  return groups
    .flatMap(({ instances, ...one }) => Array.from({ length: instances }, () => one))
    .sort((a, b) => b.threads - a.threads || b.batch - a.batch);
}

/** The configuration without its smallest instance; undefined if that is the only one. */
export function withoutOne(configuration: PoolConfiguration): PoolConfiguration | undefined {
  const [smallest] = configuration.groups.toSorted((a, b) => a.threads - b.threads || a.batch - b.batch);
  const groups = configuration.groups.flatMap((group) => {
    if (group !== smallest) return [group];
    return group.instances === 1 ? [] : [{ ...group, instances: group.instances - 1 }];
  });
  return groups.length === 0 ? undefined : { ...configuration, groups };
}

/** How a pool gets from one list to another. */
export interface ListStep {
  /** `scale`: instances are added or end, in place. `switch`: another list starts beside the one that serves. */
  readonly kind: ReconfigurationKind;
  /** To be started. */
  readonly added: readonly PlannedInstance[];
}

/** @param from undefined: on demand */
export function stepTo(from: PoolConfiguration | undefined, to: PoolConfiguration): ListStep {
  if (from === undefined) return { kind: 'switch', added: instancesOf(to) };
  if (sameConfiguration(from, to)) return { kind: 'none', added: [] };
  if (!scalesInPlace(from, to)) return { kind: 'switch', added: instancesOf(to) };
  const has = instancesOf(from).map(({ threads }) => threads);
  return { kind: 'scale', added: missingThreads(has, instancesOf(to)) };
}

export function sameConfiguration(one: PoolConfiguration, other: PoolConfiguration): boolean {
  return describe(one) === describe(other);
}

function describe(configuration: PoolConfiguration): string {
  const instances = instancesOf(configuration).map(({ threads, batch }) => [threads, batch]);
  return JSON.stringify([instances, configuration.batchTimeoutMs]);
}

/**
 * Whether one set of instances becomes the other by only adding or only ending instances (Packrat, 3.7): every instance
 * that stays keeps its number of threads. Their batch sizes concern only the dispatcher and can change at any time.
 */
export function scalesInPlace(from: PoolConfiguration, to: PoolConfiguration): boolean {
  return isWithin(countByThreads(from), countByThreads(to)) || isWithin(countByThreads(to), countByThreads(from));
}

function countByThreads(configuration: PoolConfiguration): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (const { instances, threads } of configuration.groups)
    counts.set(threads, (counts.get(threads) ?? 0) + instances);
  return counts;
}

function isWithin(fewer: ReadonlyMap<number, number>, more: ReadonlyMap<number, number>): boolean {
  return [...fewer].every(([threads, count]) => count <= (more.get(threads) ?? 0));
}

/** Of these instances, those for which there is none among `has`, which are given by their threads. */
export function missingThreads<One extends { readonly threads: number }>(
  has: readonly number[],
  wanted: readonly One[],
): One[] {
  const left = [...has];
  return wanted.filter(({ threads }) => {
    const at = left.indexOf(threads);
    if (at === -1) return true;
    left.splice(at, 1);
    return false;
  });
}
