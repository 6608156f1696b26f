/** Weight of earlier runs after each run: about the latest hundred count. */
const earlierWeight = 0.99;
/** Below this variance of row counts, all runs had the same number of rows. */
const leastVariance = 1e-6;

/** Time of a run by its rows, `fixed + perRow * rows`, fitted by least squares to the latest runs. */
export class RowCost {
  #weight = 0;
  #rows = 0;
  #ms = 0;
  #rowsRows = 0;
  #rowsMs = 0;
  /** Runs observed. */
  count = 0;

  observe(rows: number, ms: number): void {
    this.count++;
    this.#weight = this.#weight * earlierWeight + 1;
    this.#rows = this.#rows * earlierWeight + rows;
    this.#ms = this.#ms * earlierWeight + ms;
    this.#rowsRows = this.#rowsRows * earlierWeight + rows * rows;
    this.#rowsMs = this.#rowsMs * earlierWeight + rows * ms;
  }

  /** Milliseconds of a run of so many rows; undefined until runs of different lengths were observed. */
  ms(rows: number): number | undefined {
    const meanRows = this.#rows / this.#weight;
    const meanMs = this.#ms / this.#weight;
    const variance = this.#rowsRows / this.#weight - meanRows * meanRows;
    if (!(variance > leastVariance)) return undefined;
    // Fewer rows never take longer: a negative slope is noise.
    const perRowMs = Math.max(0, (this.#rowsMs / this.#weight - meanRows * meanMs) / variance);
    return Math.max(0, meanMs + perRowMs * (rows - meanRows));
  }
}
