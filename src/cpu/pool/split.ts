/** When a batch of waiting calls goes, how it is split among instances, and the order of sending the parts. */

/** An idle instance, for the splitting. */
export interface Place {
  /** Most rows of one run. */
  readonly batch: number;
  /** Expected milliseconds of a run of so many rows; never falls with more rows. */
  expectedMs(rows: number): number;
}

/** Of the time until a call's deadline, the part that is kept for a timer that is late. */
const spareShare = 0.1;

/** A call that waits, with its instants; Infinity: it has no deadline. */
export interface Waiting {
  readonly arrivalMs: number;
  readonly deadlineMs: number;
}

/** The latest instant at which a call's run may begin so that it ends before its deadline. */
export const latestStartMs = ({ arrivalMs, deadlineMs }: Waiting, runMs: number): number =>
  deadlineMs === Infinity ? Infinity : deadlineMs - runMs - (deadlineMs - arrivalMs) * spareShare;

/**
 * When the waiting calls go: once they fill the idle instances, or the earliest has waited for the timeout, and never so
 * late that one of them would miss its deadline.
 */
export const dueMs = (fullAtMs: number, earliestMs: number, timeoutMs: number, latestMs: number): number =>
  Math.min(fullAtMs, earliestMs + timeoutMs, latestMs);

/**
 * Which of the waiting requests, by index, goes to which instance. Requests are taken in order; each goes where it is
 * expected to be done first, among the instances with room for its rows. So a full batch fills every instance, and a
 * smaller one is spread so that the slowest instance is done as early as possible (for requests of one row this greedy
 * choice is optimal). A request with more rows than any instance takes goes alone to an empty instance. The first
 * request without room ends the batch: none is overtaken.
 *
 * @param rows rows of each waiting request
 */
export function splitBatch(rows: readonly number[], places: readonly Place[]): number[][] {
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

/**
 * The order in which instances on these cores get their parts, as indices: last the one whose model runs on the
 * caller's core, and before it those with other threads there. An instance that is woken on the caller's core may take
 * the core at once and keep it for some milliseconds, and parts that have not been sent by then wait as long.
 *
 * @param cores of each instance, the one that runs the model first
 * @param here the caller's core, if known
 */
export function handOverOrder(cores: readonly (readonly number[])[], here: number | undefined): number[] {
  const order = cores.map((_, index) => index);
  if (here === undefined) return order;
  const rank = (own: readonly number[] | undefined): number => (own?.[0] === here ? 2 : own?.includes(here) ? 1 : 0);
  return order.sort((a, b) => rank(cores[a]) - rank(cores[b]));
}
