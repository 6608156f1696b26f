/** How long runs of one function take, by threads and rows, as observed on its instances. */
import { getOrMake, smoothed } from '../tools/index.ts';

/** Share of a run's time that does not depend on its rows, while only one size has been seen. */
const fixedShare = 0.3;

export class LatencyBook {
  /** By threads: smoothed milliseconds by rows. */
  readonly #runs = new Map<number, Map<number, number>>();

  /** A first guess, replaced by the first run of this size. */
  expect(threads: number, rows: number, ms: number): void {
    const runs = this.#of(threads);
    if (!runs.has(rows)) runs.set(rows, ms);
  }

  observe(threads: number, rows: number, ms: number): void {
    const runs = this.#of(threads);
    runs.set(rows, smoothed(runs.get(rows), ms));
  }

  /**
   * Milliseconds of a run: linear between measured sizes, proportional beyond them apart from a fixed share, and never
   * less than a measured run of fewer rows. Unknown thread counts are assumed to divide the work of known ones.
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
    return getOrMake(this.#runs, threads, () => new Map());
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
