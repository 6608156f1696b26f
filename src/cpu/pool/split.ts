/** Splits a batch among the instances of a configuration, and orders the sending of the parts. */

/** An idle instance, for the splitting. */
export interface Place {
  /** Most rows of one run. */
  readonly batch: number;
  /** Expected milliseconds of a run of so many rows; never falls with more rows. */
  expectedMs(rows: number): number;
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
export function splitBatch(rows: Iterable<number>, places: readonly Place[]): number[][] {
  const taken = places.map(() => ({ requests: [] as number[], rows: 0 }));
  const largest = Math.max(0, ...places.map(({ batch }) => batch));
  let index = 0;
  for (const own of rows) {
    let best: number | undefined;
    let bestMs = Infinity;
    for (const [at, place] of places.entries()) {
      const load = taken[at]?.rows ?? 0;
      const fits = load + own <= place.batch || (load === 0 && own > largest);
      if (!fits) continue;
      const ms = place.expectedMs(load + own);
      if (best === undefined || ms < bestMs) {
        best = at;
        bestMs = ms;
      }
    }
    const target = best === undefined ? undefined : taken[best];
    if (target === undefined) break;
    target.requests.push(index++);
    target.rows += own;
  }
  return taken.map(({ requests }) => requests);
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
