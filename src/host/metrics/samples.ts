/** Shared by the metrics files: what series are made from, samples and their labels. */
import type { CpuPools, PoolState } from '../../cpu/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { Connections } from '../limits/connections.ts';
import type { Dependencies } from '../dependencies.ts';
import type { Exposition } from './exposition.ts';
import type { FleetMember } from '../fleet-member/index.ts';
import type { GpuHost } from '../gpu/index.ts';
import type { Usage } from '../history/index.ts';
import type { Invoker } from '../calls/invoke.ts';
import type { MemoryBudgets } from '../limits/memory-budgets.ts';
import type { ContentCache } from '../../store/index.ts';
import type { DiskUse } from '../store/index.ts';
import type { Queueing } from '../queueing/index.ts';
import type { Histogram, Statistics } from '../records/statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { allVersions } from '../rollout/versions.ts';

/** Of the cache of a store on another machine. */
export type CacheCounts = Pick<ContentCache<unknown>, 'bytes' | 'dropped'>;

export interface MetricsOptions {
  readonly config: HostConfig;
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  readonly invoker: Pick<Invoker, 'splitRequests' | 'outOfService' | 'open'>;
  readonly dependencies: Pick<Dependencies, 'names' | 'troubled' | 'disk'>;
  /** How memory is divided. */
  readonly memory: Pick<MemoryBudgets, 'totalBytes' | 'parts' | 'killCounts' | 'used'>;
  readonly usage: Pick<Usage, 'scrapeLoopDelay'>;
  readonly connections: Pick<Connections, 'open' | 'refusals'>;
  /** Absent if the host has no GPU. */
  readonly gpus?: GpuHost | undefined;
  /** Where work goes besides this host; absent: nowhere. */
  readonly fleet?: FleetMember | undefined;
  readonly queueing?: Queueing | undefined;
  /** `cache` absent: functions live in the data folder alone. */
  readonly store?: { readonly cache: CacheCounts | undefined; readonly diskUse?: Pick<DiskUse, 'latest'> };
}

/** The same, and where the series go. */
export interface Metered extends MetricsOptions {
  readonly exposition: Exposition;
  /** The state of all pools, read once per scrape. */
  readonly inPools: () => readonly [FunctionVersion, PoolState][];
}

export function addTo(sum: Histogram, part: Histogram): void {
  sum.sum += part.sum;
  sum.count += part.count;
  for (const [index, count] of part.counts.entries()) sum.counts[index] = (sum.counts[index] ?? 0) + count;
}

export function pooled(registry: Registry, pools: CpuPools): [FunctionVersion, PoolState][] {
  const states = new Map(pools.states().map((state) => [state.key, state]));
  return allVersions(registry).flatMap((version): [FunctionVersion, PoolState][] => {
    const state = states.get(version.key);
    return state === undefined ? [] : [[version, state]];
  });
}

export function readyInstances({ instances }: PoolState): number {
  return instances.filter(({ state }) => state !== 'loading').length;
}

/**
 * Every version, loaded or not, with the copies of it that can run at once: ready CPU instances, and GPUs with at least
 * its first layers.
 */
export function loadedVersions(registry: Registry, pools: CpuPools, gpus: GpuHost | undefined) {
  const states = new Map(pools.states().map((state) => [state.key, state]));
  const devices = gpus?.info?.devices ?? [];
  return allVersions(registry).map((version) => {
    const state = states.get(version.key);
    let copies = state === undefined ? 0 : readyInstances(state);
    let bytes = copies * version.modelBytes;
    for (const { index } of devices) {
      const onGpu = gpus!.live.resident(version.key, index).bytes;
      if (onGpu === 0) continue;
      copies++;
      bytes += onGpu;
    }
    return { version, copies, bytes };
  });
}
