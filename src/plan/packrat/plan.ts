import type { PoolProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { itemsOf, itemsWithin, type Item } from './items.ts';
import { fewestInstances, fills, type Box } from './packings.ts';

export interface PackratOptions {
  /** T: threads of the pool. */
  readonly threads: number;
  /** B: items of one batch over all instances. */
  readonly batch: number;
  /**
   * True (default): some threads may stay idle (Packrat, Equation 2: sum t <= T). False: all T are used, as the paper's
   * recurrence computes. On the paper's BERT table idle threads make a batch up to 1.17 times as fast.
   */
  readonly idleThreads?: boolean;
  /** Threads of each socket, adding up to T: no instance spans two (3.4). Default: one socket. */
  readonly sockets?: readonly number[];
}

/** i instances of t threads, each taking b items of the batch: the paper's <i, t, b>. */
export interface InstanceGroup extends Item {
  readonly instances: number;
}

export type PackratPlan =
  | {
      readonly state: 'planned';
      readonly batch: number;
      /** Milliseconds of the batch: the slowest instance, as if alone. Together they are slower (appendix A), whatever is chosen. */
      readonly latencyMs: number;
      /** Largest batch first. */
      readonly groups: readonly InstanceGroup[];
      /** Threads without an instance. */
      readonly threadsIdle: number;
    }
  /** No set of profiled instances adds up to the batch on these threads. */
  | { readonly state: 'infeasible'; readonly batch: number };

/**
 * The instances that finish a batch first (Packrat, 3.3): minimises the latency of the slowest (Equation 1) with batch
 * sizes that add up to B on at most T threads (Equation 2). Of equally fast plans the one with fewest instances.
 *
 * The slowest instance's latency is a value of the profile, so it is found by bisection over those: the least for which
 * instances no slower than it fill T x B. For T = 64, B = 1024 and batches by powers of two this takes milliseconds.
 * @throws PlanError for options out of range
 */
export function planPackrat(profile: PoolProfile, options: PackratOptions): PackratPlan {
  const { threads, batch, idleThreads = true, sockets = [threads] } = options;
  checkOptions(threads, batch, sockets);
  const box: Box = { sockets, batch, idleThreads };
  const items = itemsOf(profile, Math.max(...sockets), batch);
  const limitMs = leastLimitMs(items, box);
  if (limitMs === undefined) return { state: 'infeasible', batch };
  const chosen = fewestInstances(itemsWithin(items, limitMs, idleThreads), box) ?? [];
  const busy = chosen.reduce((sum, item) => sum + item.threads, 0);
  return {
    state: 'planned',
    batch,
    latencyMs: Math.max(...chosen.map(({ latencyMs }) => latencyMs)),
    groups: grouped(chosen),
    threadsIdle: threads - busy,
  };
}

/**
 * The threads of a pool by socket, on a machine whose sockets have `threadsPerSocket`. Sockets are filled in turn: 24
 * threads on sockets of 16 are [16, 8].
 */
export function fillSockets(threads: number, threadsPerSocket: number): number[] {
  const sockets: number[] = [];
  for (let left = threads; left > 0; left -= threadsPerSocket) sockets.push(Math.min(left, threadsPerSocket));
  return sockets;
}

function leastLimitMs(items: readonly Item[], box: Box): number | undefined {
  const limits = [...new Set(items.map(({ latencyMs }) => latencyMs))].sort((a, b) => a - b);
  let low = 0;
  let high = limits.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (fills(itemsWithin(items, limits[middle] ?? Infinity, box.idleThreads), box)) high = middle;
    else low = middle + 1;
  }
  return limits[low];
}

function grouped(items: readonly Item[]): InstanceGroup[] {
  const groups = new Map<Item, number>();
  for (const item of items) groups.set(item, (groups.get(item) ?? 0) + 1);
  return [...groups]
    .map(([{ threads, batch, latencyMs }, instances]) => ({ instances, threads, batch, latencyMs }))
    .sort((a, b) => b.batch - a.batch || b.threads - a.threads);
}

function checkOptions(threads: number, batch: number, sockets: readonly number[]): void {
  mustBeCount('threads', threads, mostThreads);
  mustBeCount('batch', batch, mostBatch);
  for (const size of sockets) mustBeCount('threads of a socket', size, mostThreads);
  const inSockets = sockets.reduce((sum, size) => sum + size, 0);
  if (inSockets !== threads) {
    throw new PlanError(`the sockets have ${inSockets} threads together, but the pool has ${threads}`);
  }
}

/** The limits of a profile too; more would take gigabytes of memory. */
const mostThreads = 1024;
const mostBatch = 65_536;

function mustBeCount(name: string, value: number, most: number): void {
  if (!Number.isInteger(value) || value < 1 || value > most) {
    throw new PlanError(`${name} is ${value}, but must be a whole number from 1 to ${most}`);
  }
}
