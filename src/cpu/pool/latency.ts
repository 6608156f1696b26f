/** How long runs of one function take, by threads and rows, as its instances have shown. */

/** Weight of the newest run among those before it. */
const newestWeight = 0.2;
/** Share of a run's time that does not depend on its rows, where runs of one size only have been seen. */
const fixedShare = 0.3;

export class LatencyBook {
  /** By threads: smoothed milliseconds by rows. */
  readonly #runs = new Map<number, Map<number, number>>();

  /** A first guess, of which nothing is kept once a run of this size has been seen. */
  expect(threads: number, rows: number, ms: number): void {
    const runs = this.#of(threads);
    if (!runs.has(rows)) runs.set(rows, ms);
  }

  observe(threads: number, rows: number, ms: number): void {
    const runs = this.#of(threads);
    const before = runs.get(rows);
    runs.set(rows, before === undefined ? ms : before + newestWeight * (ms - before));
  }

  /**
   * Milliseconds of a run: between measured sizes by a straight line, beyond them in proportion but for a fixed share,
   * and never less than a measured run of fewer rows. Threads that have not been seen are taken to share the work of
   * those that have.
   */
  ms(threads: number, rows: number): number {
    const runs = this.#runs.get(threads);
    if (runs !== undefined) return between(runs, rows);
    const [nearest] = [...this.#runs.keys()].sort((a, b) => Math.abs(a - threads) - Math.abs(b - threads));
    const known = nearest === undefined ? undefined : this.#runs.get(nearest);
    if (nearest === undefined || known === undefined) return (fixedShare + rows) / threads;
    return (between(known, rows) * nearest) / threads;
  }

  #of(threads: number): Map<number, number> {
    let runs = this.#runs.get(threads);
    if (runs === undefined) this.#runs.set(threads, (runs = new Map()));
    return runs;
  }
}

function between(runs: ReadonlyMap<number, number>, rows: number): number {
  let below: readonly [number, number] | undefined;
  let above: readonly [number, number] | undefined;
  let floorMs = 0;
  for (const [size, ms] of runs) {
    if (size <= rows) {
      floorMs = Math.max(floorMs, ms);
      if (below === undefined || size > below[0]) below = [size, ms];
    }
    if (size >= rows && (above === undefined || size < above[0])) above = [size, ms];
  }
  if (below === undefined && above === undefined) return rows;
  const estimateMs = line(below, above, rows);
  return Math.max(floorMs, estimateMs);
}

function line(
  below: readonly [number, number] | undefined,
  above: readonly [number, number] | undefined,
  rows: number,
): number {
  if (below !== undefined && above !== undefined) {
    const [fromRows, fromMs] = below;
    const [toRows, toMs] = above;
    if (toRows === fromRows) return fromMs;
    return fromMs + ((toMs - fromMs) * (rows - fromRows)) / (toRows - fromRows);
  }
  const [size, ms] = below ?? above ?? [1, 0];
  return ms * (fixedShare + (1 - fixedShare) * (rows / size));
}
