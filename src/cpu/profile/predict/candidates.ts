/** The ways to run a pool that a profile covers. */
import { planPackrat, type PackratPlan } from '../../../plan/index.ts';
import { coresIn, instancesIn } from '../../../schedule/index.ts';
import type { PoolGroup } from '../../types.ts';
import type { CpuProfile, MeasuredList } from './cpu-profile.ts';
import { instanceMs } from './instance-time.ts';

/** A configuration with its known speed. */
export type Candidate =
  /**
   * c like instances, each running one request at a time: SERF's service parallelism and intra-node parallelism. A
   * request is one row, or as many as the model fixes.
   */
  | {
      readonly kind: 'unbatched';
      readonly groups: readonly PoolGroup[];
      readonly cores: number;
      /** Requests of a run. */
      readonly batch: 1;
      /** Milliseconds of a request while 1, 2, ... c of them run. */
      readonly serviceTimeMs: readonly number[];
      /** Variance of those times over their squared mean, all c at work. */
      readonly variation: number;
    }
  /** Packrat's list: a batch of rows is divided among the instances. */
  | {
      readonly kind: 'batched';
      readonly groups: readonly PoolGroup[];
      readonly cores: number;
      /** Rows of the whole batch. */
      readonly batch: number;
      /** The whole batch, measured with all instances at once. */
      readonly latencyMs: number;
      /** How much longer the batch took than its slowest instance takes alone; 1 or more. */
      readonly interference: number;
    };

export type BatchedCandidate = Extract<Candidate, { kind: 'batched' }>;
export type UnbatchedCandidate = Extract<Candidate, { kind: 'unbatched' }>;

/** A configuration as text: `<2,1,8> + <1,2,4>`. */
export function groupsText(groups: readonly PoolGroup[]): string {
  return groups.map(({ instances, threads, batch }) => `<${instances},${threads},${batch}>`).join(' + ');
}

export function sameGroups(a: readonly PoolGroup[], b: readonly PoolGroup[]): boolean {
  return groupsText(a) === groupsText(b);
}

/** The configuration that divides a batch least: the fewest instances, then the most cores. */
export function leastDivided(configurations: readonly { readonly groups: readonly PoolGroup[] }[]): number {
  const ranks = configurations.map(({ groups }, index) => ({
    index,
    instances: instancesIn({ groups }),
    cores: coresIn({ groups }),
  }));
  return ranks.sort((a, b) => a.instances - b.instances || b.cores - a.cores)[0]?.index ?? -1;
}

/** Every candidate that takes at most `cores` cores and `batchMax` rows, unbatched ones first. */
export function candidatesOf(profile: CpuProfile, cores: number, batchMax: number): Candidate[] {
  const [rows = 1] = profile.pool.batches;
  const unbatched = profile.service.configurations.map(({ concurrency, threads, serviceTime }): Candidate => {
    const groups = [{ instances: concurrency, threads, batch: rows }];
    const varied = profile.variation.find((each) => each.concurrency === concurrency && each.threads === threads);
    return {
      kind: 'unbatched',
      groups,
      cores: coresIn({ groups }),
      batch: 1,
      serviceTimeMs: rising(serviceTime),
      variation: varied?.squared ?? 0,
    };
  });
  const batched = profile.lists.filter(({ batch }) => batch > 1 || unbatched.length === 0).map(batchedCandidate);
  return [...unbatched, ...batched].filter((each) => each.cores <= cores && each.batch <= batchMax);
}

function batchedCandidate({ batch, groups, latencyMs, expectedMs }: MeasuredList): BatchedCandidate {
  const interference = Math.max(1, latencyMs / expectedMs);
  return { kind: 'batched', groups, cores: coresIn({ groups }), batch, latencyMs, interference };
}

/** A row is never faster beside others than alone: that would be noise, which breaks the queue's formula. */
export function rising(serviceTimeMs: readonly number[]): number[] {
  let most = 0;
  return serviceTimeMs.map((timeMs) => (most = Math.max(most, timeMs)));
}

/**
 * The lists worth measuring together for a batch on `cores` cores: Packrat's plan from the latencies of single
 * instances, the one instance of all cores, and the instances of one core each. The planner does not know how instances
 * slow each other down; the measurement does.
 */
export function listsToMeasure(
  { pool }: Pick<CpuProfile, 'pool'>,
  { cores, sockets, batch }: { readonly cores: number; readonly sockets: readonly number[]; readonly batch: number },
): { readonly groups: readonly PoolGroup[]; readonly expectedMs: number }[] {
  const found = new Map<string, { readonly groups: readonly PoolGroup[]; readonly expectedMs: number }>();
  const add = (groups: readonly PoolGroup[]): void => {
    const times = groups.map((group) => instanceMs(pool, group.threads, group.batch));
    if (times.some((timeMs) => timeMs === undefined)) return;
    if (groups.some(({ batch: rows }) => !pool.batches.includes(rows))) return;
    found.set(groupsText(groups), { groups, expectedMs: Math.max(...times.map(Number)) });
  };
  const plan: PackratPlan = planPackrat(pool, { threads: cores, batch, sockets });
  if (plan.state === 'planned') {
    add(plan.groups.map(({ instances, threads, batch: rows }) => ({ instances, threads, batch: rows })));
  }
  add([{ instances: 1, threads: Math.max(...sockets), batch }]);
  const thin = Math.min(cores, batch);
  if (batch % thin === 0) add([{ instances: thin, threads: 1, batch: batch / thin }]);
  return [...found.values()];
}
