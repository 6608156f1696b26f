/**
 * Lists of instances that take calls in batches (Packrat): when the waiting calls go, and which goes to which instance.
 * Pools, the prediction of a pool and the simulator all run this code.
 */

/** Like instances of a list: `instances` of them, of `threads` threads, each taking up to `batch` rows a run. */
export interface PoolGroup {
  readonly instances: number;
  /** Intra-op threads, each on a core that no other instance has. */
  readonly threads: number;
  /** Rows: requests, if each brings one. */
  readonly batch: number;
  /** Expected time of a run of `batch` rows: decides how a smaller batch is split until runs have been measured. */
  readonly latencyMs?: number;
}

/**
 * Which instances a pool runs: Packrat's list of <i,t,b>, whose groups may differ. A batch is up to the sum of i x b
 * rows.
 */
export interface PoolConfiguration {
  readonly groups: readonly PoolGroup[];
  /** Longest that a request waits for the batch to fill. Default: that of the function. */
  readonly batchTimeoutMs?: number;
}

/** An idle instance, for the splitting. */
export interface BatchPlace {
  /** Most rows of one run. */
  readonly batch: number;
  /** Expected milliseconds of a run of so many rows; never falls with more rows. */
  expectedMs(rows: number): number;
}

/** A call that waits. */
export interface BatchCall {
  readonly rows: number;
  readonly arrivalMs: number;
  /** Infinity: it has none. */
  readonly deadlineMs: number;
  /** It goes alone: it has seen an instance die, and must not fail others a second time, or its model runs elsewhere. */
  readonly alone: boolean;
}

/** The share of the time until a call's deadline that is kept for a timer that is late. */
const spareShare = 0.1;

/** Calls that the instances of a list take at once. */
export function slotsOf({ groups }: Pick<PoolConfiguration, 'groups'>): number {
  let slots = 0;
  for (const { instances, batch } of groups) slots += instances * batch;
  return slots;
}

export const instancesIn = (list: Pick<PoolConfiguration, 'groups'> | undefined): number =>
  list?.groups.reduce((sum, { instances }) => sum + instances, 0) ?? 0;

/** Cores that a list takes: one for each thread. */
export const coresIn = ({ groups }: Pick<PoolConfiguration, 'groups'>): number =>
  groups.reduce((sum, { instances, threads }) => sum + instances * threads, 0);

/**
 * Until when the waiting calls wait for more: they go once they fill the idle instances, or the earliest has waited for
 * the timeout, and never so late that one of them would miss its deadline. -Infinity: now.
 *
 * @param capacity rows that the idle instances take @param runMs expected time of a run
 */
export function batchDueMs(waiting: Iterable<BatchCall>, capacity: number, timeoutMs: number, runMs: number): number {
  if (timeoutMs === 0 || capacity <= 1) return -Infinity;
  let [waitingRows, count, dueMs] = [0, 0, Infinity];
  for (const { rows, arrivalMs, deadlineMs, alone } of waiting) {
    waitingRows += rows;
    if (waitingRows >= capacity || (count++ === 0 && alone)) return -Infinity;
    const latestMs = deadlineMs - runMs - (deadlineMs - arrivalMs) * spareShare;
    dueMs = Math.min(dueMs, arrivalMs + timeoutMs, deadlineMs === Infinity ? Infinity : latestMs);
  }
  return dueMs;
}

/**
 * Which of the waiting calls, by index, goes to which of the idle instances: {@link splitBatch} of those that fit.
 *
 * @param fixedRows where every run must have so many: a run then holds one request, which brings all its rows
 */
export function nextBatch(
  waiting: Iterable<BatchCall>,
  places: readonly BatchPlace[],
  fixedRows: number | undefined,
): number[][] {
  const capacity = places.reduce((sum, { batch }) => sum + batch, 0);
  const sizes: number[] = [];
  let waitingRows = 0;
  for (const { rows, alone } of waiting) {
    if (waitingRows >= capacity || (sizes.length > 0 && alone)) break;
    sizes.push(fixedRows ?? rows);
    waitingRows += rows;
    if (alone) break;
  }
  return splitBatch(sizes, places);
}

/**
 * Which of the waiting requests, by index, goes to which instance. Requests are taken in order; each goes where it is
 * expected to be done first, among the instances with room for its rows. So a full batch fills every instance, and a
 * smaller one is spread so that the slowest instance is done as early as possible (for requests of one row this greedy
 * choice is optimal). A request with more rows than any instance takes goes alone to an empty instance. The first
 * request without room ends the batch: none is overtaken.
 *
 * @param rows rows of each waiting request
 */
export function splitBatch(rows: readonly number[], places: readonly BatchPlace[]): number[][] {
  const taken: number[][] = places.map(() => []);
  const loads = new Float64Array(places.length);
  let largest = 0;
  for (const { batch } of places) largest = Math.max(largest, batch);
  for (let index = 0; index < rows.length; index++) {
    const own = rows[index]!;
    let best = -1;
    let bestMs = Infinity;
    for (let at = 0; at < places.length; at++) {
      const load = loads[at]!;
      if (load + own > places[at]!.batch && (load > 0 || own <= largest)) continue;
      const ms = places[at]!.expectedMs(load + own);
      if (best >= 0 && ms >= bestMs) continue;
      best = at;
      bestMs = ms;
    }
    if (best === -1) break;
    taken[best]!.push(index);
    loads[best]! += own;
  }
  return taken;
}
